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
  if tonumber(ARGV[1]) < seen and ARGV[2] == 'guard' then
    redis.call('HINCRBY', KEYS[1], 'refused', 1)
    return -1
  end
  redis.call('HSET', KEYS[1], 'fence', ARGV[1])
  if ARGV[3] then
    redis.call('RPUSH', KEYS[2], ARGV[1])
    redis.call('HSET', KEYS[1], 'value', ARGV[3])
    redis.call('HINCRBY', KEYS[1], 'accepted', 1)
  end
  return tonumber(redis.call('HGET', KEYS[1], 'value') or '0')
`;

/**
 * Counts one up in the store of `lock`, guarded by the fence; false if the store refused. With
 * `unfenced` the guard looks away.
 */
export async function guardedStep(
  redis: Redis,
  lock: string,
  fence: number,
  unfenced = false,
): Promise<boolean> {
  const guard = unfenced ? 'none' : 'guard';
  const read = await access(redis, lock, fence, guard);
  return read >= 0 && (await access(redis, lock, fence, guard, read + 1)) >= 0;
}

/** What the store of `lock` has, for a holder that shares the lock; undefined if the store refused. */
export async function guardedRead(
  redis: Redis,
  lock: string,
  fence: number,
): Promise<number | undefined> {
  const read = await access(redis, lock, fence, 'guard');
  return read < 0 ? undefined : read;
}

/** Reads, or writes `value` if there is one; less than 0 if the store refused. */
async function access(
  redis: Redis,
  lock: string,
  fence: number,
  guard: 'guard' | 'none',
  ...value: number[]
): Promise<number> {
  const keys = [`store:${lock}`, `writes:${lock}`];
  return Number(await redis.eval(ACCESS, keys.length, ...keys, fence, guard, ...value));
}

/** Counts one up, guarded by nothing but the lock. */
export async function plainStep(redis: Redis, lock: string): Promise<void> {
  const read = Number(await redis.get(`plain:${lock}`));
  await redis.set(`plain:${lock}`, read + 1);
}

export class Ledger {
  constructor(readonly server: RedisServer) {}

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

  /** The fences of all writes that the stores accepted, in their order, by their locks. */
  async writes(): Promise<Map<string, number[]>> {
    const { admin } = this.server;
    const keys = await admin.keys('writes:*');
    const entries = keys.map(async (key) => {
      const fences = (await admin.lrange(key, 0, -1)).map(Number);
      return [key.slice('writes:'.length), fences] as const;
    });
    return new Map(await Promise.all(entries));
  }

  /** Forgets everything. */
  async clear(): Promise<void> {
    await this.server.admin.flushall();
  }

  async stop(): Promise<void> {
    await this.server.stop();
  }
}
