// What one process does in a run: many waiters, one lock, nothing to do while holding it.

import { setTimeout as sleep } from 'node:timers/promises';
import { clock } from '../clock.mjs';

/**
 * Waits for `start` (by the clock that all processes share), then lets `waiters` at the lock `name`,
 * again and again until `end`. With an `end` that has passed each waiter gets the lock once. Returns per
 * grant: its waiter, and the times of the request, the grant and the release.
 */
export async function contend(contender, { name, waiters, start, end }) {
  const log = [];
  const lag = (start - clock()) / 1000;
  if (lag > 0) await sleep(lag);
  await Promise.all(
    Array.from({ length: waiters }, async (_, waiter) => {
      do {
        const asked = clock();
        const lock = await contender.ask(name);
        const got = clock();
        log.push(waiter, asked, got, clock());
        await contender.release(lock);
      } while (clock() < end);
    }),
  );
  return Float64Array.from(log);
}
