/** The places of locks in the campaign. */

import type { ConnectOptions } from 'holdfast';
import { isCounter, quiet } from '../../../support/crew.js';
import type { ConnectTarget } from '../../../support/holdfast.js';
import type { RedisServer } from '../../../support/server.js';
import type { ServerFault } from '../server-faults.js';

/** The longest requested lease, in ms. */
export const LEASE_MS = 1_500;
/** The life of a side key after its process died; see `docs/protocol.md`. */
const QUIET_MS = 45_000;

/** Servers that run, and how to get there. */
export interface Place {
  /** Ways to get there: processes take them in turn. */
  readonly targets: readonly ConnectTarget[];
  readonly options: ConnectOptions;
  readonly names: readonly string[];
  /** It has exclusive locks alone, and no wait queue. */
  readonly quorum: boolean;
  readonly faults: readonly ServerFault[];
  /** The servers that have locks now. */
  servers(): Promise<readonly RedisServer[]>;
  stop(): Promise<void>;
}

/** The names of the locks, where their slots do not matter. */
export const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

/** The keys that are left at the end, except counters; only one that all locks share may last for ever. */
export async function leftovers(place: Place, patienceMs = QUIET_MS): Promise<string[]> {
  const servers = await place.servers();
  const found = await Promise.all(
    servers.map(async (server) => {
      try {
        await quiet(server, patienceMs, place);
      } catch (error) {
        return [(error as Error).message];
      }
      const entries = Object.entries(await server.keyspace());
      const endless = entries.filter(([key, { ttl }]) => ttl < 0 && !isCounter(key));
      return endless.map(([key]) => `${key} never ends`);
    }),
  );
  return found.flat();
}
