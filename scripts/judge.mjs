// Judges recorded histories of locks: npm run judge -- PATH… (files, or folders with *.jsonl). `docs/proof.md` says what
// that means. Ends with code 1 if one of them is not linearizable.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const manifest = join(root, 'tools', 'judge', 'Cargo.toml');
const target = join(root, 'target', 'judge');
const cargo = ['run', '--quiet', '--release', '--manifest-path', manifest, '--target-dir', target];
const { status, error } = spawnSync('cargo', [...cargo, '--', ...process.argv.slice(2)], {
  stdio: 'inherit',
});
if (error !== undefined) throw error;
process.exit(status ?? 2);
