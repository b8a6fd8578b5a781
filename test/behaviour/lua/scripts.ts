/** The scripts as they are sent, to be called by hand. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { ROOT } from '../../support/child.js';

export const LOCK = 'lock:a';
export const FENCE = 'holdfast:fence';
export const QUEUE = '{lock:a}:queue';
export const WAITERS = '{lock:a}:waiters';
export const SHARED = '{lock:a}:shared';
export const WAITING = '{lock:a}:waiting';

const KEYS = [LOCK, FENCE, QUEUE, WAITERS, SHARED, WAITING] as const;

/** The text of a script, with the parts that it shares with others in their places. */
export function source(name: string): string {
  const text = readFileSync(join(ROOT, 'src', 'protocol', 'lua', `${name}.lua`), 'utf8');
  return text.replace(/--#include (\w+)\.lua/g, (_, part) => source(part));
}

/** The arguments of `acquire.lua` besides the token. */
interface Acquire {
  readonly ttl?: number;
  readonly epoch?: number | string;
  /** 'try', 'poll', or a queue entry ('0': at the end). */
  readonly seq?: string;
  /** '-' for the whole lock, '0' for a share without a limit, or the limit. */
  readonly limit?: string;
}

export interface Scripts {
  /** The fence, or null if the lock is not the token's. */
  acquire(token: string, options?: Acquire): Promise<number | null>;
  /** The unchanged reply of an acquire. */
  ask(token: string, options?: Acquire): Promise<unknown>;
  extend(token: string, ttl: number): Promise<unknown>;
  delete(token: string): Promise<unknown>;
  release(token: string): Promise<unknown>;
  /** Takes the share of `owner` over. */
  adoptShare(token: string, owner: string): Promise<unknown>;
}

export function scripts(redis: Redis): Scripts {
  const names = ['acquire', 'adopt', 'extend', 'delete', 'release'];
  const [acquire, adopt, extend, free, release] = names.map(source) as [
    string,
    string,
    string,
    string,
    string,
  ];
  const ask = (
    token: string,
    { ttl = 10_000, epoch = 0, seq = 'try', limit = '-' }: Acquire = {},
  ) => redis.eval(acquire, KEYS.length, ...KEYS, token, ttl, epoch, '', seq, limit, 1);
  return {
    ask,
    acquire: async (token, options) => {
      const reply = await ask(token, options);
      return typeof reply === 'number' ? reply : null;
    },
    extend: (token, ttl) => redis.eval(extend, 1, LOCK, token, ttl),
    delete: (token) => redis.eval(free, 1, LOCK, token),
    release: (token) => redis.eval(release, KEYS.length, ...KEYS, token, 0),
    adoptShare: (token, owner) =>
      redis.eval(adopt, KEYS.length, ...KEYS, token, 0, owner, 10_000, '0'),
  };
}
