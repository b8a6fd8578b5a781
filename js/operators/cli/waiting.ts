/** Tells a person at a terminal for whom a command waits. */

import { setTimeout as sleep } from 'node:timers/promises';
import { adviceOnGone } from '../../base/label.js';
import { printable } from '../../base/printable.js';
import { clock, moment } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';
import { nameOf, tokensOf, viewOf } from '../views/lock-views.js';
import { type HoldAge, Observer } from '../views/observer.js';
import { say } from './exit.js';
import { leaseOf } from './lock-tables.js';

/** A person who waits for less than this sees no message. */
const FIRST_LOOK_MS = 1_000;
const NEXT_LOOK_MS = 2_000;

/** Says on a terminal who holds the lock, whenever that changes, until the function that it returns is called. */
export function tellHolder(locks: LockManager, name: string, json: boolean): () => void {
  const ended = new AbortController();
  if (!json && process.stderr.isTTY) void tell(locks, name, ended.signal);
  return () => ended.abort();
}

async function tell(locks: LockManager, name: string, ended: AbortSignal): Promise<void> {
  const observer = new Observer();
  const began = Date.now();
  let known = '';
  let pause = FIRST_LOOK_MS;
  while (!ended.aborted) {
    // An early end is no error.
    await sleep(pause, undefined, { signal: ended }).catch(() => {});
    pause = NEXT_LOOK_MS;
    // An error ends no look: the request for the lock reports errors.
    const view = ended.aborted ? undefined : await viewOf(locks, name).catch(() => undefined);
    if (view === undefined || ended.aborted) continue;
    const now = Date.now();
    observer.look([view], now);
    const tokens = tokensOf(view).join();
    if (tokens === known || tokens === '') continue;
    known = tokens;
    const who = view.holders.map((holder) => {
      return `${nameOf(holder)} (since ${sinceOf(observer.holdOf(holder), now)}, lease ${leaseOf(holder)})`;
    });
    const gone = view.holders.map(({ label }) => adviceOnGone(label ?? undefined));
    const advice = gone.find((each) => each !== undefined);
    const position = view.waiters.find(({ clientId }) => clientId === locks.clientId)?.position;
    const place = position === undefined ? '' : `, at position ${position}`;
    say(
      `waiting since ${clock(new Date(began))} for lock "${printable(name)}"${place}: held, ${view.mode}, by ${who.join(', ')}${advice === undefined ? '' : `; ${advice}`}`,
    );
  }
}

/** Since when it is held, as far as is known. */
function sinceOf(hold: HoldAge | undefined, now: number): string {
  const { since, began } = hold ?? { since: now, began: 'or earlier' };
  return began === 'at' ? moment(new Date(since)) : `${moment(new Date(since))} ${began}`;
}
