// Tries every order in which threads can come to what they share, with loom: that nobody waits for a record
// that nobody is going to read.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const env = {
  ...process.env,
  RUSTFLAGS: `${process.env.RUSTFLAGS ?? ''} --cfg loom`,
  // Other flags make other builds: those of the tests stay.
  CARGO_TARGET_DIR: join(root, 'target', 'loom'),
};
const args = ['test', '--lib', '--no-default-features', 'outbox::', ...process.argv.slice(2)];
const { status } = spawnSync('cargo', args, { cwd: root, env, stdio: 'inherit' });
process.exit(status ?? 1);
