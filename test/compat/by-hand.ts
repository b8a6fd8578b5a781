/** The lock that services write by hand: SET NX PX, compare-and-delete, compare-and-expire. */

import { randomUUID } from 'node:crypto';
import { sleep } from '../support/wait.js';
import type { Peer, PeerLock } from './rolling-deploy.js';

const RELEASE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const EXTEND =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

/** The methods of a Redis client that such code calls. */
export interface Commands {
  /** `SET key value NX PX ttl`. */
  setNx(key: string, value: string, ttl: number): Promise<string | null>;
  eval(script: string, key: string, args: readonly string[]): Promise<unknown>;
  close(): Promise<void>;
}

export function byHand(commands: Commands): Peer {
  const tryAcquire = async (name: string, ttl: number): Promise<PeerLock | null> => {
    const token = randomUUID();
    if ((await commands.setNx(name, token, ttl)) !== 'OK') return null;
    return {
      release: async () => (await commands.eval(RELEASE, name, [token])) === 1,
      extend: async (more) => (await commands.eval(EXTEND, name, [token, String(more)])) === 1,
    };
  };
  const acquire = async (name: string, ttl: number): Promise<PeerLock> => {
    for (;;) {
      const held = await tryAcquire(name, ttl);
      if (held !== null) return held;
      await sleep(10);
    }
  };
  return { tryAcquire, acquire, close: () => commands.close() };
}
