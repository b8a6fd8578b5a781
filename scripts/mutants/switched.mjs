// A copy of the project whose `dist` has all mistakes of js/, each behind a switch, and the runs of its tests.

import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { rolldown } from 'rolldown';
import { makeCopy, ROOT } from './copy.mjs';

const COPY = join(ROOT, 'target', 'mutants', 'switched');
export const TESTS = testsOf(COPY);
const RECORDER = join(import.meta.dirname, 'recorder.cjs');
/** After this a test that is asked to end, and does not, is killed. */
const GRACE_MS = 3_000;

/** The processes that run now: they end with this one. */
const running = new Set();
for (const name of ['SIGHUP', 'SIGINT', 'SIGTERM']) process.once(name, () => process.exit(1));
process.once('exit', () => {
  for (const pid of running) signal(pid, 'SIGKILL');
});

/** Builds the copy from the texts of the sources. */
export async function buildSwitched(texts) {
  makeCopy(COPY, ['package.json', 'build', 'dist']);
  const { default: configs } = await import(join(ROOT, 'js', 'rolldown.config.mjs'));
  for (const { output, ...input } of configs) {
    const bundle = await rolldown({ ...input, plugins: [withTexts(texts), input.plugins] });
    const isCommonJs = output.format === 'cjs';
    const banner = isCommonJs ? `'use strict';\nrequire(${JSON.stringify(RECORDER)});` : '';
    await bundle.write({ ...output, banner, dir: join(COPY, 'dist'), cleanDir: false });
    await bundle.close();
  }
}

function withTexts(texts) {
  return {
    name: 'switched-mistakes',
    load: (id) => {
      const code = texts.get(relative(ROOT, id));
      return code === undefined ? null : { code, moduleType: 'ts' };
    },
  };
}

/**
 * Runs a file of tests of a copy, and ends it at the first failure: `{ ended, ms }`, where `ended` is 'passed', 'failed' or,
 * after `limit` milliseconds, 'hung'.
 */
export function runTest(file, variables, limit, copy = COPY) {
  const begun = performance.now();
  const folder = sharedFolder('lot-');
  const flags = ['--enable-source-maps', '--expose-gc', '--disable-warning=WARN_LOCK_PERSISTENCE'];
  const child = spawn(
    process.execPath,
    [...flags, '--test-reporter=tap', join(testsOf(copy), file)],
    {
      cwd: copy,
      env: { ...process.env, TMPDIR: folder, ...variables },
      stdio: ['ignore', 'pipe', 'ignore'],
      // A group of its own, so that whatever it started ends with it.
      detached: true,
    },
  );
  running.add(child.pid);
  let ended;
  const end = (how) => {
    if (ended !== undefined) return;
    ended = how;
    signal(child.pid, 'SIGTERM', { alone: true });
    setTimeout(() => signal(child.pid, 'SIGKILL'), GRACE_MS).unref();
  };
  const timer = setTimeout(() => end('hung'), limit);
  let unread = '';
  child.stdout.on('data', (chunk) => {
    const lines = (unread + chunk).split('\n');
    unread = lines.pop() ?? '';
    if (lines.some((line) => /^\s*not ok /.test(line))) end('failed');
  });
  return new Promise((resolve) => {
    child.once('exit', (code) => {
      clearTimeout(timer);
      running.delete(child.pid);
      signal(child.pid, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
      resolve({
        ended: ended ?? (code === 0 ? 'passed' : 'failed'),
        ms: performance.now() - begun,
      });
    });
  });
}

/** The built tests of a copy. */
export function testsOf(copy) {
  return join(copy, 'build', 'test');
}

/** A new folder in which programs of other users may write as well: some tests run as nobody. */
export function sharedFolder(prefix) {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  chmodSync(folder, 0o777);
  return folder;
}

function signal(pid, name, { alone = false } = {}) {
  try {
    process.kill(alone ? pid : -pid, name);
  } catch {
    // It has ended.
  }
}
