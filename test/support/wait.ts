/** Waiting for conditions, never for luck. */

import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until `condition` holds; fails after `limit` ms with what was waited for. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  limit = 20_000,
): Promise<void> {
  const end = performance.now() + limit;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`waited ${limit} ms in vain for ${what}`);
    await sleep(5);
  }
}

export { sleep };
