/** Where requests and their answers are kept. */

import { checkObject, checkText } from '../base/checks.js';
import { evaluate } from '../base/evaluate.js';

/**
 * How far a request has come: `started`, its handler had no effects yet; `effects`, it may have had some; `done`, its
 * answer is known.
 *
 * @example
 * ```ts
 * import type { IdempotencyState } from 'holdfast/idempotency'
 *
 * const state: IdempotencyState = 'effects'
 * ```
 */
export type IdempotencyState = 'done' | 'effects' | 'started';

/**
 * The record of a request.
 *
 * @example
 * ```ts
 * import { memoryStore } from 'holdfast/idempotency'
 *
 * const record = await memoryStore().read('an-id')
 * console.log(record?.state) // undefined
 * ```
 */
export interface IdempotencyRecord {
  /** A digest of its method, URL and body. */
  readonly fingerprint: string;
  /** How far it has come. */
  readonly state: IdempotencyState;
  /** The answer, as text, once it is `done`. */
  readonly response?: string;
}

/**
 * Keeps records for a time. Each method is one atomic step. `update` refuses a process that has lost its lock to
 * another: its fence is not that of the record any more.
 *
 * @example
 * ```ts
 * import { type IdempotencyStore, memoryStore } from 'holdfast/idempotency'
 *
 * const store: IdempotencyStore = memoryStore()
 * const begun = { fingerprint: 'a', state: 'started', fence: 33, ttl: 1_000 } as const
 * console.log(await store.begin('id', begun), await store.update('id', 34, 'effects', 1_000)) // undefined false
 * ```
 */
export interface IdempotencyStore {
  /** The record of a request; undefined if there is none. */
  read(id: string): Promise<IdempotencyRecord | undefined>;
  /**
   * Writes the record of a new attempt if there is none, or if the existing record has the same fingerprint, an earlier
   * fence and the state `started` (with `again` also `effects`). Otherwise returns the existing record.
   */
  begin(
    id: string,
    attempt: {
      readonly fingerprint: string;
      readonly state: IdempotencyState;
      readonly fence: number;
      readonly ttl: number;
      readonly again?: boolean;
    },
  ): Promise<IdempotencyRecord | undefined>;
  /**
   * Changes the record, or removes it if `state` is undefined. If the record has another fence, does nothing and
   * returns false.
   */
  update(
    id: string,
    fence: number,
    state: IdempotencyState | undefined,
    ttl: number,
    response?: string,
  ): Promise<boolean>;
}

/**
 * Keeps records in this process, for tests. They are kept until the process ends, and `ttl` is ignored.
 *
 * @example
 * ```ts
 * import { memoryStore } from 'holdfast/idempotency'
 *
 * console.log(await memoryStore().read('an-id')) // undefined
 * ```
 */
export function memoryStore(): IdempotencyStore {
  const records = new Map<string, IdempotencyRecord & { readonly fence: number }>();
  return {
    async read(id) {
      return records.get(id);
    },
    async begin(id, { fingerprint, state, fence, again = false }) {
      const found = records.get(id);
      const open = found?.state === 'started' || (again && found?.state === 'effects');
      const replaceable = open && found?.fingerprint === fingerprint && found.fence <= fence;
      if (found !== undefined && !replaceable) return found;
      records.set(id, { fingerprint, state, fence });
      return undefined;
    },
    async update(id, fence, state, _ttl, response) {
      const found = records.get(id);
      if (found?.fence !== fence) return false;
      if (state === undefined) records.delete(id);
      else records.set(id, { ...found, state, ...(response === undefined ? {} : { response }) });
      return true;
    },
  };
}

const READ = "return redis.call('HMGET', KEYS[1], 'fingerprint', 'state', 'response')";

const BEGIN = `
local fingerprint, fence, state, ttl, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found = redis.call('HMGET', KEYS[1], 'fingerprint', 'state', 'response', 'fence')
local open = found[2] == 'started' or (again == '1' and found[2] == 'effects')
local replaceable = open and found[1] == fingerprint and tonumber(found[4]) <= tonumber(fence)
if found[2] and not replaceable then return {found[1], found[2], found[3]} end
redis.call('HSET', KEYS[1], 'fingerprint', fingerprint, 'state', state, 'fence', fence)
redis.call('PEXPIRE', KEYS[1], ttl)
return {false, false, false}
`;

const UPDATE = `
local fence, state, ttl, response = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', KEYS[1], 'fence') ~= fence then return 0 end
if state == '' then
  redis.call('DEL', KEYS[1])
  return 1
end
redis.call('HSET', KEYS[1], 'state', state, 'response', response)
redis.call('PEXPIRE', KEYS[1], ttl)
return 1
`;

/**
 * Keeps records in Redis: a hash for each request, with a TTL.
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
    async read(id) {
      return recordOf(await run(READ, id));
    },
    async begin(id, { fingerprint, fence, state, ttl, again = false }) {
      const args = [fingerprint, `${fence}`, state, `${ttl}`, again ? '1' : '0'];
      return recordOf(await run(BEGIN, id, ...args));
    },
    async update(id, fence, state = '' as never, ttl, response = '') {
      return (await run(UPDATE, id, `${fence}`, state, `${ttl}`, response)) === 1;
    },
  };
}

function recordOf(reply: unknown): IdempotencyRecord | undefined {
  const [fingerprint, state, response] = reply as (string | null)[];
  if (typeof fingerprint !== 'string' || typeof state !== 'string') return undefined;
  const record = { fingerprint, state: state as IdempotencyState };
  return typeof response === 'string' ? { ...record, response } : record;
}
