// Runs the compiled tests with Node's own runner: all of them, or those whose path contains one of
// the given words.

import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..', 'build', 'test');
const words = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const flags = process.argv.slice(2).filter((argument) => argument.startsWith('-'));

const files = readdirSync(root, { recursive: true })
  .filter((file) => file.endsWith('.test.js'))
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .map((file) => join(root, file))
  .sort();

if (files.length === 0) {
  console.error(`no test matches ${words.join(' ')}; is everything built (npm run build)?`);
  process.exit(1);
}

const args = [
  '--test',
  '--test-concurrency=2',
  '--enable-source-maps',
  '--expose-gc',
  // The quorums of the tests keep no data over a restart, on purpose.
  '--disable-warning=WARN_LOCK_PERSISTENCE',
  // Repeats the failures at the end, wherever it is printed.
  '--test-reporter=spec',
  // A test that hangs fails; no file takes a third of this.
  '--test-timeout=300000',
  ...flags,
  ...files,
];
const { status } = spawnSync(process.execPath, args, { stdio: 'inherit' });
process.exit(status ?? 1);
