/** A process that campaigns, on orders. What it does as a leader, it appends to a log that all candidates share. */

import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Term } from 'holdfast';
import { connect, type LockManager, openOperations } from '../support/holdfast.js';
import { serve } from '../support/orders.js';
import type { Entry } from './log.js';

const [, , who = '', log = ''] = process.argv;
const TICK_MS = 2;

let locks: LockManager;
let stop = new AbortController();
let leading = Promise.resolve();

/** The machine's monotonic clock, which its processes share, in ms. */
function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Writes down that it leads, if it does: whatever happens between the two looks, it led at the first. */
function tick(term: Term): void {
  const at = now();
  if (!term.lock.held) return;
  const entry: Entry = { who, fence: term.fence, at };
  appendFileSync(log, `${JSON.stringify(entry)}\n`);
}

async function work(term: Term): Promise<void> {
  tick(term);
  while (!term.signal.aborted) {
    await sleep(TICK_MS);
    tick(term);
  }
}

const orders = {
  async open(url: string, ttl: number): Promise<void> {
    locks = await connect(url, { label: who, ttl });
  },

  /** Begins to campaign. */
  campaign(): void {
    stop = new AbortController();
    leading = locks.lead('job', { signal: stop.signal }, work);
  },

  /** Resigns, and campaigns no more. Answers when it told the callback so. */
  async resign(): Promise<number> {
    const at = now();
    stop.abort();
    await leading;
    return at;
  },

  /** How long a round trip takes, in ms: the shortest of a few. The lock is held, so each costs one. */
  async roundTrip(): Promise<number> {
    let shortest = Number.POSITIVE_INFINITY;
    for (let times = 0; times < 5; times++) {
      const asked = now();
      await locks.tryAcquire('leader:job');
      shortest = Math.min(shortest, now() - asked);
    }
    return shortest;
  },

  /** Closes the manager without a word to the callback before. */
  async shutDown(): Promise<void> {
    await locks.close();
    await leading;
  },

  /** Ends the process without closing anything. */
  exit(): void {
    process.exit(0);
  },

  async close(): Promise<number> {
    stop.abort();
    await leading;
    await locks.close();
    return openOperations();
  },
};

/** The orders of a candidate. */
export type Orders = typeof orders;

serve(orders);
process.once('disconnect', () => process.exit(0));
