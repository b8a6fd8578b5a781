/**
 * A server of its own that keeps what a test must not lose when processes and servers end: the history
 * of holds, and for each lock a resource that the lock protects.
 */

import { Redis } from 'ioredis';
import type { Hold } from './history.js';
import { RedisServer } from './server.js';

export function createClient(url: string): Redis {
  return new Redis(url, { enableAutoPipelining: true });
}

/** What became of the resource of one lock. */
export interface Store {
  /** A counter that every holder reads, and writes back with one more, showing its fence. */
  readonly value: number;
  /** How many of these writes were accepted. */
  readonly accepted: number;
  /** Reads and writes that were refused because a greater fence had been seen. */
  readonly refused: number;
  /** The same counter without a look at the fence. */
  readonly plain: number;
}

// A read shows its fence too: otherwise a newer holder's read could be undone by an older one's write.
const ACCESS = `
  local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
  if tonumber(ARGV[1]) < seen then
    redis.call('HINCRBY', KEYS[1], 'refused', 1)
    return -1
  end
  redis.call('HSET', KEYS[1], 'fence', ARGV[1])
  if ARGV[2] then
    redis.call('HSET', KEYS[1], 'value', ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'accepted', 1)
  end
  return tonumber(redis.call('HGET', KEYS[1], 'value') or '0')
`;

/** Counts one up in the store of `lock`, guarded by the fence; false if the store refused. */
export async function guardedStep(redis: Redis, lock: string, fence: number): Promise<boolean> {
  const read = Number(await redis.eval(ACCESS, 1, `store:${lock}`, fence));
  if (read < 0) return false;
  return Number(await redis.eval(ACCESS, 1, `store:${lock}`, fence, read + 1)) >= 0;
}

/** What the store of `lock` has, for a holder that shares the lock; undefined if the store refused. */
export async function guardedRead(
  redis: Redis,
  lock: string,
  fence: number,
): Promise<number | undefined> {
  const read = Number(await redis.eval(ACCESS, 1, `store:${lock}`, fence));
  return read < 0 ? undefined : read;
}

/** Counts one up, guarded by nothing but the lock. */
export async function plainStep(redis: Redis, lock: string): Promise<void> {
  const read = Number(await redis.get(`plain:${lock}`));
  await redis.set(`plain:${lock}`, read + 1);
}

export class Ledger {
  private constructor(readonly server: RedisServer) {}

  static async start(): Promise<Ledger> {
    return new Ledger(await RedisServer.start());
  }

  get url(): string {
    return this.server.url;
  }

  async holds(): Promise<Hold[]> {
    const all = await this.server.admin.hgetall('holds');
    return Object.values(all).map((text) => JSON.parse(text) as Hold);
  }

  /** The stores by their locks. */
  async stores(): Promise<Map<string, Store>> {
    const { admin } = this.server;
    const stores = new Map<string, Store>();
    for (const key of await admin.keys('store:*')) {
      const lock = key.slice('store:'.length);
      const { value, accepted, refused } = await admin.hgetall(key);
      const plain = await admin.get(`plain:${lock}`);
      const count = (text: string | null | undefined) => Number(text ?? 0);
      stores.set(lock, {
        value: count(value),
        accepted: count(accepted),
        refused: count(refused),
        plain: count(plain),
      });
    }
    return stores;
  }

  /** Forgets everything. */
  async clear(): Promise<void> {
    await this.server.admin.flushall();
  }

  async stop(): Promise<void> {
    await this.server.stop();
  }
}
