// A copy of the project in which mistakes are made, and its tests: the sources stay as they are, however this ends.

import { spawn, spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '..', '..');
const COPY = join(ROOT, 'target', 'mutants', 'copy');
/** What is built or changed in the copy; all else is the project's own. */
const COPIED = ['js', 'src', 'package.json', 'build', 'dist'];
export const LEFT_OUT = ['.git', 'target'];
/** Tests that take longer wait for something that never comes: the mistake is noticed, but late. */
const LIMIT_MS = 240_000;

export function makeCopy(to = COPY, copied = COPIED, leftOut = LEFT_OUT) {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  for (const entry of readdirSync(ROOT)) {
    if (leftOut.includes(entry)) continue;
    if (copied.includes(entry)) cpSync(join(ROOT, entry), join(to, entry), { recursive: true });
    else symlinkSync(join(ROOT, entry), join(to, entry));
  }
}

/** Does `work` while the file of the copy has other text. */
export async function whileChanged(file, change, work) {
  const path = join(COPY, file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(path, change(source));
  try {
    return await work();
  } finally {
    writeFileSync(path, source);
  }
}

/** Whether a build of JavaScript, or the files of tests whose paths contain one of `words`, fail. */
export async function javaScriptFails(words) {
  const rolldown = join(ROOT, 'node_modules', '.bin', 'rolldown');
  if (!succeeds(rolldown, ['--config', 'js/rolldown.config.mjs'])) return true;
  const root = join(COPY, 'build', 'test');
  const files = readdirSync(root, { recursive: true }).filter(
    (file) => file.endsWith('.test.js') && words.some((word) => file.includes(word)),
  );
  if (files.length === 0) throw new Error(`no test matches ${words.join(' ')}`);
  const flags = ['--test', '--expose-gc', '--test-timeout=120000', '--test-reporter=tap'];
  return fails(process.execPath, [...flags, ...files.map((file) => join(root, file))]);
}

/** Whether the core does not build, or its unit tests whose names contain one of `words` fail. */
export function rustFails(words) {
  const target = join(COPY, '..', 'rust');
  const features = ['--no-default-features', '--features', 'core', '--target-dir', target];
  return !succeeds('cargo', ['test', '--quiet', ...features, '--', ...words]);
}

function succeeds(program, args) {
  const { status } = spawnSync(program, args, { cwd: COPY, stdio: 'ignore', timeout: LIMIT_MS });
  return status === 0;
}

/** Whether tests fail: the first that does ends the others. */
function fails(program, args) {
  const child = spawn(program, args, { cwd: COPY, stdio: ['ignore', 'pipe', 'ignore'] });
  const timer = setTimeout(() => child.kill(), LIMIT_MS);
  let unread = '';
  child.stdout.on('data', (chunk) => {
    unread += chunk;
    const lines = unread.split('\n');
    unread = lines.pop() ?? '';
    if (lines.some((line) => /^\s*not ok /.test(line))) child.kill();
  });
  return new Promise((resolve) => {
    child.once('close', (code) => {
      clearTimeout(timer);
      resolve(code !== 0);
    });
  });
}
