/** Reads how often a server has run its commands. */

import type { Redis } from 'ioredis';

/** The scripts, and what newer servers delete a lock by: each release at a server is one of these. */
export const SCRIPTS_AND_DELETIONS: readonly string[] = ['evalsha', 'delex', 'delifeq'];

/** How often a server has run the commands of these names, together. */
export async function callsOf(admin: Redis, names: readonly string[]): Promise<number> {
  const stats = await admin.info('commandstats');
  const calls = stats.matchAll(/^cmdstat_(\w+):calls=(\d+)/gm);
  const counts = Array.from(calls, ([, name = '', count]) =>
    names.includes(name) ? Number(count) : 0,
  );
  return counts.reduce((sum, count) => sum + count, 0);
}
