/** Where the records of requests are kept. */

import { checkObject, checkText } from '../../base/checks.js';
import { evaluate } from '../../base/evaluate.js';
import type { LockManager } from '../../manager/manager.js';

/**
 * Keeps the records of requests, as text, for a time. Each method is one atomic step.
 *
 * @example
 * ```ts
 * import { type IdempotencyStore, memoryStore } from 'holdfast/idempotency'
 *
 * const store: IdempotencyStore = memoryStore()
 * console.log(await store.replace('id', undefined, 'begun', 1_000), await store.read('id')) // true begun
 * console.log(await store.replace('id', undefined, 'begun twice', 1_000)) // false
 * ```
 */
export interface IdempotencyStore {
  /** The record of a request; undefined if there is none. */
  read(id: string): Promise<string | undefined>;
  /**
   * Replaces the record `from` by `to`, for `ttl` ms; undefined stands for no record. Returns true if the record is `to`
   * then, also if it was before: a call whose answer was lost is sent again. Otherwise changes nothing.
   */
  replace(
    id: string,
    from: string | undefined,
    to: string | undefined,
    ttl: number,
  ): Promise<boolean>;
}

/**
 * Keeps records in this process, for tests.
 *
 * @param locks - A manager by whose clock records end when their `ttl` is over; a test moves it by `locks.advance`. By
 *   default they are kept until the process ends.
 *
 * @example
 * ```ts
 * import { connect } from 'holdfast'
 * import { memoryStore } from 'holdfast/idempotency'
 *
 * const locks = await connect('memory:')
 * const store = memoryStore(locks)
 * await store.replace('an-id', undefined, 'begun', 1_000)
 * await locks.advance('1s')
 * console.log(await store.read('an-id')) // undefined
 * ```
 */
export function memoryStore(locks?: LockManager): IdempotencyStore {
  const records = new Map<string, { readonly text: string; readonly until: number }>();
  const now = () => locks?.now() ?? 0;
  const find = (id: string) => {
    const found = records.get(id);
    return found !== undefined && found.until > now() ? found.text : undefined;
  };
  return {
    read: async (id) => find(id),
    async replace(id, from, to, ttl) {
      const found = find(id);
      if (found !== from && found !== to) return false;
      if (to === undefined) records.delete(id);
      else if (found !== to) records.set(id, { text: to, until: now() + ttl });
      return true;
    },
  };
}

const READ = "return redis.call('GET', KEYS[1])";

// KEYS: the record. ARGV: what it must be, what it becomes (each '' for no record), and its ttl in ms. Reply: 1 or 0.
const REPLACE = `
local found = redis.call('GET', KEYS[1]) or ''
if found == ARGV[2] then return 1 end
if found ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
`;

/**
 * Keeps records in Redis: a string for each request, with a TTL.
 *
 * @param client - A client of ioredis or node-redis, for one server or a Cluster. The server must not evict keys: if it
 *   evicts a record, a repeat of the request runs as a new request.
 * @param options - `prefix` of the keys, by default `idempotent:`.
 *
 * @example
 * ```ts
 * import { createClient } from 'redis'
 * import { redisStore } from 'holdfast/idempotency'
 *
 * const redis = await createClient({ url: process.env.REDIS_URL }).connect()
 * console.log(await redisStore(redis).read('an-id')) // undefined
 * redis.destroy()
 * ```
 */
export function redisStore(
  // biome-ignore lint/suspicious/noExplicitAny: the two libraries have different parameters
  client: { eval(...args: any[]): Promise<unknown> },
  options?: { readonly prefix?: string },
): IdempotencyStore {
  const { prefix = 'idempotent:' } = checkObject<{ prefix?: string }>(
    options,
    ['prefix'],
    'redisStore',
  );
  checkText(prefix, '"prefix"');
  const run = (script: string, id: string, ...args: string[]) =>
    evaluate(client, script, [prefix + id], args);
  return {
    read: async (id) => ((await run(READ, id)) as string | null) ?? undefined,
    replace: async (id, from = '', to = '', ttl) =>
      (await run(REPLACE, id, from, to, `${ttl}`)) === 1,
  };
}
