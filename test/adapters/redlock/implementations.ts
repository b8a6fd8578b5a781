/** node-redlock 5 and its replacement, as one type. */

import type * as Drop from 'holdfast/redlock';
import { Redis } from 'ioredis';
import type { RedisServer } from '../../support/server.js';

/** The exports of both packages. */
export type Package = Pick<
  typeof Drop,
  'default' | 'ExecutionError' | 'Lock' | 'ResourceLockedError'
>;
export type Redlock = Drop.Redlock;
export type Lock = Drop.Lock;
export type ExecutionError = Drop.ExecutionError;

export const OLD = 'redlock5';
export const NEW = 'holdfast/redlock';

/** One of the two, by its name. */
export function load(name: string): Package {
  return require(name) as Package;
}

/** A client of a server, for one that may be away: what it cannot send now fails now. */
export function clientOf(server: RedisServer, options: object = {}): Redis {
  const impatient = { maxRetriesPerRequest: 0, enableOfflineQueue: true };
  const client = new Redis(server.port, '127.0.0.1', { ...impatient, ...options });
  client.on('error', () => {});
  return client;
}

/** The error that `attempt` rejects with. */
export async function errorOf(attempt: Promise<unknown>): Promise<ExecutionError> {
  const failed = await attempt.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ('error' in failed) return failed.error as ExecutionError;
  throw new Error('it did not fail');
}
