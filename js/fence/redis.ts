/** Fences of data in Redis. */

import { checkObject, checkText, checkWhole } from '../base/checks.js';
import { evaluate } from '../base/evaluate.js';
import { hashTagOf, slotTagOf } from '../base/hash-slots.js';
import type { Duration } from '../base/time.js';
import { checkFenced, type Fenced, stale } from './check.js';

const TIMES: ReadonlySet<string> = new Set(['ttl']);

/**
 * A client of ioredis or node-redis, for one server or a Cluster.
 *
 * @example
 * ```ts
 * import { createClient } from 'redis'
 * import type { FenceRedis } from 'holdfast/fence'
 *
 * const redis: FenceRedis = createClient({ url: 'redis://127.0.0.1:6379' })
 * ```
 */
export interface FenceRedis {
  // biome-ignore lint/suspicious/noExplicitAny: the two libraries have different parameters
  eval(...args: any[]): Promise<unknown>;
}

/** Raises the fence, then runs what follows as if it was alone. */
const GUARD = `
local guard, fence = table.remove(KEYS, 1), table.remove(ARGV, 1)
local seen = redis.call('GET', guard)
if seen and tonumber(seen) > tonumber(fence) then return redis.error_reply('STALEFENCE ' .. seen) end
redis.call('SET', guard, fence)
`;

/**
 * Runs a Lua script unless a later owner of the lock has run one with the same first key. The fence is kept in a second
 * key, which ends in `:guard`, is in the same slot of a Cluster, and never expires.
 *
 * @param client - A client of ioredis or node-redis, with which the service reaches its data.
 * @param script - Sees `KEYS` and `ARGV` as given here.
 * @returns The script's reply.
 * @throws StaleFenceError if a later owner of the lock has used the key. The script has not run.
 *
 * @example
 * ```ts
 * import { createClient } from 'redis'
 * import { fencedEval } from 'holdfast/fence'
 *
 * const redis = await createClient({ url: process.env.REDIS_URL }).connect()
 * await locks.request('item:42', async (lock) => {
 *   // Reads by the same way: from now on earlier owners are refused.
 *   const stock = { keys: ['stock:42'] }
 *   const n = Number(await fencedEval(redis, lock, "return redis.call('GET', KEYS[1])", stock))
 *   await fencedEval(redis, lock, "return redis.call('SET', KEYS[1], ARGV[1])", { ...stock, arguments: [`${n + 1}`] })
 * })
 * redis.destroy()
 * ```
 */
export async function fencedEval(
  client: FenceRedis,
  lock: Fenced,
  script: string,
  options: {
    readonly keys: readonly [string, ...string[]];
    readonly arguments?: readonly string[];
  },
): Promise<unknown> {
  const { name, fence } = checkFenced(lock);
  checkText(script, 'the script');
  const { keys, arguments: args = [] } = options;
  const [first] = keys;
  checkText(first, 'the first key');
  try {
    return await evaluate(client, GUARD + script, [guardOf(first), ...keys], [`${fence}`, ...args]);
  } catch (error) {
    const seen = /STALEFENCE (\d+)/.exec(String(error))?.[1];
    if (seen === undefined) throw error;
    throw stale({ name, fence }, Number(seen), `the guard of the key "${first}"`);
  }
}

/**
 * Sets a string unless a later owner of the lock has used its key, by `fencedSet` or `fencedEval`.
 *
 * @param options - `ttl` in ms: how long the string lasts; by default for ever. Its fence stays in any case.
 * @throws StaleFenceError if a later owner of the lock has used the key. Nothing was written.
 *
 * @example
 * ```ts
 * import { createClient } from 'redis'
 * import { fencedSet } from 'holdfast/fence'
 *
 * const redis = await createClient({ url: process.env.REDIS_URL }).connect()
 * await locks.request('report', (lock) => fencedSet(redis, lock, 'report', 'all is well', { ttl: 60_000 }))
 * redis.destroy()
 * ```
 */
export async function fencedSet(
  client: FenceRedis,
  lock: Fenced,
  key: string,
  value: string,
  options?: { readonly ttl?: Duration },
): Promise<void> {
  const { ttl } = checkObject<{ ttl?: Duration }>(options, ['ttl'], 'fencedSet', TIMES);
  if (ttl !== undefined) checkWhole(ttl, '"ttl"', 1, Number.MAX_SAFE_INTEGER);
  checkText(value, 'the value');
  const lease = ttl === undefined ? [] : ['PX', `${ttl}`];
  await fencedEval(client, lock, "return redis.call('SET', KEYS[1], unpack(ARGV))", {
    keys: [key],
    arguments: [value, ...lease],
  });
}

/**
 * The key of the fence, in the slot of the data. No two keys have the same: the three forms differ in what stands before
 * `:guard`, a `:`, a `}` or a `d`.
 */
function guardOf(key: string): string {
  if (hashTagOf(key) !== undefined) return `${key}::guard`;
  // The text in braces ends at the first brace that closes.
  if (key !== '' && !key.includes('}')) return `{${key}}:guard`;
  return `{${slotTagOf(key)}}:${key}:braced:guard`;
}
