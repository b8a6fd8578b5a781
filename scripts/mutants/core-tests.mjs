// The unit tests of a copy of the core: one that fails ends the others.

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { WORK } from './core-build.mjs';

/** Tests that take long: they come after the others. */
const SLOW = /::(simulator|campaign|models|defects|known_defects)::|quorum::quorum_/;
/** A mistake is noticed if it makes tests wait for ever, so that none ends for so long, or uses all memory. */
const SILENT_MS = 180_000;
const LIMIT_KB = 6_000_000;
const FRESH = { HOLDFAST_FROM: '7000000', HOLDFAST_SEEDS: '1500' };

/** Runs all tests without a mistake, and returns the names of those that reach each. */
export async function recordReached(binary) {
  const path = join(WORK, 'core-reached');
  rmSync(path, { force: true });
  const failed = await run(binary, [], { HOLDFAST_REACHED: path });
  if (failed !== undefined) throw new Error(`without a mistake: ${failed}`);
  const reached = new Map();
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
  for (const line of lines.filter((each) => each !== '')) {
    const [number] = line.split(' ', 1);
    const tests = reached.get(Number(number)) ?? new Set();
    reached.set(Number(number), tests.add(line.slice(number.length + 1)));
  }
  return reached;
}

/** The first failure of all tests; those that cover the scripts run first. */
export async function failsAnyTest(binary, env) {
  return (await run(binary, ['server::', 'protocol::'], env)) ?? (await run(binary, [], env));
}

/** The first failure of the tests that reach a mistake; the quick ones run first. */
export async function failsOneOf(tests, binary, env) {
  // Threads that a test has started have other names, or none.
  const named = [...tests].filter((test) => test.includes('::'));
  const [slow, quick] = [true, false].map((is) => named.filter((test) => SLOW.test(test) === is));
  for (const group of [quick, slow]) {
    const failed = group.length === 0 ? undefined : await run(binary, ['--exact', ...group], env);
    if (failed !== undefined) return failed;
  }
  if (named.length === tests.size) return undefined;
  return run(binary, ['--exact', ...named.flatMap((test) => ['--skip', test])], env);
}

/** Whether fresh seeds of the simulator fail. */
export function failsFreshSeeds(binary, env) {
  const args = ['--ignored', 'campaign::fresh_seeds'];
  return run(binary, args, { ...env, ...FRESH });
}

/** The name of the first test that fails, or why the run ended. */
function run(binary, args, env) {
  const temporary = mkdtempSync(join(WORK, 'tmp-'));
  // In a group of its own, which has the servers that the tests start.
  const child = spawn('sh', ['-c', `ulimit -v ${LIMIT_KB}; exec "$0" "$@"`, binary, ...args], {
    cwd: WORK,
    detached: true,
    env: { ...process.env, ...env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let why;
  const end = (reason) => {
    why ??= reason;
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // All have ended.
    }
  };
  const timer = setTimeout(() => end('does not end'), SILENT_MS);
  let unread = '';
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    timer.refresh();
    unread += chunk;
    const lines = unread.split('\n');
    unread = lines.pop();
    for (const line of lines) {
      const [, test] = /^test (\S+).*\.\.\. FAILED/.exec(line) ?? [];
      if (test !== undefined) end(test);
    }
  });
  return new Promise((resolve) => {
    child.once('close', (code) => {
      clearTimeout(timer);
      end(code === 0 ? undefined : `code ${code}`);
      rmSync(temporary, { recursive: true, force: true });
      resolve(why);
    });
  });
}
