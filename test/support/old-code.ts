/**
 * A process whose code locks by hand, without holdfast, and records its holds. Ordered by
 * `contender.ts`.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { byHand } from '../compat/by-hand.js';
import { now, type Recorder } from './history.js';

/** The order for such a process. */
export interface OldCode {
  /** The whole keys. */
  readonly names: readonly string[];
  readonly tasks: number;
  /** The lease, in ms. It is never renewed. */
  readonly ttl: number;
}

/**
 * The server may count a lease from the moment at which it began to look for requests, a little ahead of
 * this one's.
 */
const MARGIN_MS = 10;

/** Takes and releases locks until `halt`. Answers the number of holds. */
export async function lockByHand(
  url: string,
  recorder: Recorder,
  plan: OldCode,
  halted: () => boolean,
): Promise<number> {
  const client = new Redis(url);
  const peer = byHand({
    setNx: (key, value, ttl) => client.set(key, value, 'PX', ttl, 'NX'),
    eval: (script, key, args) => client.eval(script, 1, key, ...args),
    close: async () => client.disconnect(),
  });
  let count = 0;
  const task = async () => {
    while (!halted()) {
      const name = plan.names[Math.floor(Math.random() * plan.names.length)] as string;
      const asked = now();
      const lock = await peer.tryAcquire(name, plan.ttl);
      if (lock !== null) {
        count += 1;
        const end = asked + (plan.ttl - MARGIN_MS) * 1000;
        const recorded = recorder.begin(leaseUntil(name, end), { asked, shared: false });
        // Now and then for longer than its lease.
        await sleep(Math.random() * (Math.random() < 0.05 ? 2 * plan.ttl : 20));
        recorder.end(recorded);
        await recorder.flush();
        await lock.release();
      }
      await sleep(Math.random() * 40);
    }
  };
  await Promise.all(Array.from({ length: plan.tasks }, task));
  await peer.close();
  return count;
}

/** A lock without a fence, in which its holder believes until `end`. */
function leaseUntil(name: string, end: number) {
  return {
    name,
    fence: 0,
    get remaining() {
      return Math.max(0, Math.floor((end - now()) / 1000));
    },
  };
}
