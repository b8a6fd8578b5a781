/** The program that a Node with Web Locks runs: it runs every case on both, and prints the results. */

import { setTimeout as sleep } from 'node:timers/promises';
import { holdfast } from '../../support/holdfast.js';
import { CASES, DIFFERENT, type WebLocks } from './cases.js';

const PATIENCE_MS = 10_000;

/** The result of a case, also if it fails or never ends, so that the others run all the same. */
async function outcome(run: (locks: WebLocks) => unknown, locks: WebLocks): Promise<unknown> {
  const ended = new AbortController();
  const tooLate = sleep(PATIENCE_MS, 'it never ended', { signal: ended.signal });
  tooLate.catch(() => {});
  try {
    return await Promise.race([run(locks), tooLate]);
  } catch (error) {
    return `it failed: ${error}`;
  } finally {
    ended.abort();
  }
}

async function main(url: string): Promise<void> {
  const locks = await holdfast.connect(url);
  const native = (navigator as unknown as { locks: WebLocks }).locks;
  // To the compiler it can stand in, too.
  const standIn: Pick<LockManager, 'query' | 'request'> = locks;
  const stand = standIn as unknown as WebLocks;
  const different = [...DIFFERENT].map(([title, [run]]) => [title, run] as const);
  for (const [title, run] of [...different, ...CASES]) {
    const [theirs, ours] = [await outcome(run, native), await outcome(run, stand)];
    console.log(JSON.stringify({ title, theirs, ours }));
  }
  await locks.close();
  // A case that never ended may keep the process alive.
  process.exit();
}

// A case that failed halfway may leave calls behind that fail later.
process.on('unhandledRejection', () => {});
void main(process.argv[2] ?? 'memory:');
