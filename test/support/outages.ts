/** Outages of servers that are as long as a part of a lease, from the worst moment on: when its renewal is on its way. */

import type { ConnectOptions } from 'holdfast';
import { type ConnectTarget, connect, type LockManager } from './holdfast.js';
import type { FaultProxy } from './proxy.js';
import { sleep, until } from './wait.js';

/** What stands between managers and the servers, and where they connect. */
export interface Place {
  readonly target: ConnectTarget;
  readonly options?: ConnectOptions;
  readonly proxies: readonly FaultProxy[];
}

/** A way to lose servers: from one moment on, and until another. */
export interface Outage {
  begin(place: Place): void;
  end(place: Place): Promise<void> | void;
}

const each = (place: Place, act: (proxy: FaultProxy) => void): void => place.proxies.forEach(act);

export const OUTAGES = {
  closing: {
    begin: (place) =>
      each(place, (proxy) => {
        proxy.hangsUp = true;
        proxy.hangUp();
      }),
    end: (place) =>
      each(place, (proxy) => {
        proxy.hangsUp = false;
      }),
  },
  reset: {
    begin: (place) =>
      each(place, (proxy) => {
        proxy.refuse = true;
        proxy.cut();
      }),
    end: (place) =>
      each(place, (proxy) => {
        proxy.refuse = false;
      }),
  },
  refusal: {
    begin: (place) => each(place, (proxy) => void proxy.leave()),
    end: async ({ proxies }) => {
      await Promise.all(proxies.map((proxy) => proxy.comeBack()));
    },
  },
  'black hole': {
    begin: (place) =>
      each(place, (proxy) => {
        proxy.blackhole = true;
      }),
    end: (place) =>
      each(place, (proxy) => {
        // What was sent into it never arrives, and nobody is told.
        proxy.silence();
        proxy.blackhole = false;
      }),
  },
} as const satisfies Record<string, Outage>;

/** How often a round is tried at most, while this process stands still. */
const REPEATS = 10;

/**
 * Locks of several managers, whose servers are away for `part` of their lease. Returns how many were lost; a round in
 * which this process, with its proxies, stood still for longer than is left of the lease is repeated.
 */
export async function lossesBy(
  outage: Outage,
  place: Place,
  { ttl, part, count }: { ttl: number; part: number; count: number },
): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    const { lost, stood } = await round(outage, place, { ttl, part, count });
    if (lost === 0 || stood < (ttl * (2 / 3 - part)) / 4 || attempt === REPEATS) return lost;
  }
}

let rounds = 0;

async function round(
  outage: Outage,
  place: Place,
  { ttl, part, count }: { ttl: number; part: number; count: number },
): Promise<{ lost: number; stood: number }> {
  const managers: LockManager[] = [];
  try {
    for (let number = 0; number < count; number++) {
      managers.push(await connect(place.target, { ttl, ...place.options }));
    }
    rounds += 1;
    const name = `outage-${rounds}`;
    const locks = await Promise.all(
      managers.map((manager, number) => manager.acquire(`${name}-${number}`)),
    );
    let began = 0;
    for (const proxy of place.proxies) {
      proxy.onRequest = (chunk) => {
        if (began > 0 || !chunk.includes(`lock:${name}-`)) return;
        began = performance.now();
        outage.begin(place);
      };
    }
    await until(() => began > 0, 'the first renewal');
    await sleep(began + ttl * part - performance.now());
    await outage.end(place);
    // The lag is measured until the lease would end.
    const stood = await lag(began + ttl * 0.75 - performance.now());
    const lost = locks.filter((lock) => !lock.held).length;
    // One connection for each, and one for the shard channels of a Cluster.
    const closed = () => place.proxies.every(({ open }) => open <= 2 * count);
    await until(closed, 'the attempts to connect to be closed that are not needed');
    return { lost, stood };
  } finally {
    for (const proxy of place.proxies) proxy.onRequest = undefined;
    await Promise.all(managers.map((manager) => manager.close()));
  }
}

/** The longest time within the next `duration` for which this process did not turn, in ms. */
async function lag(duration: number): Promise<number> {
  const end = performance.now() + duration;
  let [longest, before] = [0, performance.now()];
  while (before < end) {
    await sleep(2);
    const now = performance.now();
    longest = Math.max(longest, now - before - 2);
    before = now;
  }
  return longest;
}
