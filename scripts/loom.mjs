// Tries every order in which threads can access shared data, with loom: no record may stay unread, and no timeout may
// be slept through.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const env = {
  ...process.env,
  RUSTFLAGS: `${process.env.RUSTFLAGS ?? ''} --cfg loom`,
  // Other flags make other builds, so these do not replace the builds of the tests.
  CARGO_TARGET_DIR: join(root, 'target', 'loom'),
};
const models = ['alarm::', 'outbox::'];
const args = ['test', '--lib', '--no-default-features', '--', ...models, ...process.argv.slice(2)];
const { status } = spawnSync('cargo', args, { cwd: root, env, stdio: 'inherit' });
process.exit(status ?? 1);
