/** Many managers in one process, and garbage collections at every moment: nothing is left over. */

import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { connect, type LockManager, openOperations } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const MANAGERS = 1_000;
const AT_ONCE = 20;

const server = serverOfFile();

function collect(): void {
  assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
  globalThis.gc();
}

interface Footprint {
  readonly heap: number;
  readonly rss: number;
  readonly files: number;
  readonly threads: number;
}

/** The resources of the process: MB, open files, threads (0 where the system does not list them). */
function footprint(): Footprint {
  collect();
  collect();
  const { rss, heapUsed } = process.memoryUsage();
  const threads = existsSync('/proc/self/task') ? readdirSync('/proc/self/task').length : 0;
  const files = readdirSync('/dev/fd').length;
  return { heap: heapUsed / 2 ** 20, rss: rss / 2 ** 20, files, threads };
}

/** A manager is opened, used and closed. */
async function visit(target: string): Promise<void> {
  const locks = await connect(target);
  const lock = await locks.acquire('visit', { mode: 'shared' });
  assert.equal(await lock.release(), true);
  await locks.close();
}

async function visits(target: string, count: number): Promise<void> {
  for (let done = 0; done < count; done += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, () => visit(target)));
  }
}

for (const kind of ['memory:', 'Redis']) {
  test(`${MANAGERS} managers of ${kind} are opened and closed, and leave nothing`, async () => {
    const target = kind === 'memory:' ? 'memory:' : server.url;
    await visits(target, 200);
    const base = footprint();
    await visits(target, MANAGERS);
    // Node keeps objects that were used in this turn of the event loop until it ends.
    await new Promise(setImmediate);
    // The sockets of the last ones are closed by another thread.
    await until(() => footprint().files <= base.files, 'every file to be closed');
    const left = footprint();
    const story = JSON.stringify({ base, left });
    assert.ok(left.threads <= base.threads, story);
    assert.ok(left.heap - base.heap < 3, story);
    // A store of its own alone, with its Lua, is more than 100 kB: 100 MB in all.
    assert.ok(left.rss - base.rss < 50, story);
    assert.equal(openOperations(), 0);
  });
}

/** Collects garbage in every turn of the event loop until it is told to stop. */
function collectAlways(): { count(): number; stop(): void } {
  let collections = 0;
  let running = true;
  const again = () => {
    if (!running) return;
    collect();
    collections += 1;
    setImmediate(again);
  };
  again();
  return {
    count: () => collections,
    stop: () => {
      running = false;
    },
  };
}

/** Starts some operations of each kind that last for a while. */
async function everything(locks: LockManager, round: number): Promise<void> {
  const name = `gc:${round % 3}`;
  const abort = new AbortController();
  const cancelled = locks.acquire(`${name}:held`, { signal: abort.signal });
  const several = locks.acquire([`${name}:x`, `${name}:y`]);
  const callback = locks.request(name, { wait: 20_000 }, async (lock) => {
    await lock.extend();
    return lock.remaining > 0;
  });
  const page = locks.query();
  abort.abort();
  await cancelled.then(
    (lock) => lock.release(),
    (error: Error) => assert.equal(error.name, 'AbortError'),
  );
  assert.equal(await (await several).release(), true);
  assert.equal(await callback, true);
  assert.ok((await page).held.length >= 0);
}

for (const kind of ['memory:', 'Redis']) {
  test(`${kind}: collections in every turn of the event loop change nothing`, async () => {
    const locks = await connect(kind === 'memory:' ? 'memory:' : server.url);
    const collections = collectAlways();
    try {
      for (let round = 0; round < 20 || collections.count() < 50; round += 5) {
        const rounds = [0, 1, 2, 3, 4].map((i) => everything(locks, round + i));
        await Promise.all(rounds);
      }
    } finally {
      collections.stop();
    }
    assert.equal(locks.stats().held, 0);
    await locks.close();
    assert.equal(openOperations(), 0);
  });
}
