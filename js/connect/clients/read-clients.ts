/** Finds out where a service's clients of ioredis and node-redis are connected to. */

import type { ConnectOptions } from '../options.js';
import type { QuorumTarget } from '../target.js';
import { readIoredis } from './ioredis.js';
import { readNodeRedis } from './node-redis.js';
import { readNodeRedis3 } from './node-redis3.js';
import { bag, type Place, placeOf, prefixOf, refuse } from './place.js';

/** The arguments of `connect`. @internal */
export interface Whereabouts {
  readonly target: string | QuorumTarget | Place['target'];
  readonly options: ConnectOptions;
}

const QUORUM_MIN = 3;
const QUORUM_MAX = 15;

/** The methods that all clients of one library have: ioredis, node-redis, and libraries whose clients tell nothing. */
const METHODS = ['defineCommand', 'sendCommand', 'send_command', 'customCommand'];

/**
 * Whether `value` is the client of a Redis library. To be asked first: a client has a method for each command, and so
 * one that is called `cluster`.
 *
 * @internal
 */
export function isClient(value: unknown): boolean {
  const client = bag(value);
  return METHODS.some((method) => typeof client[method] === 'function');
}

/**
 * The target of one client is its server, its Sentinels' master or its Cluster; three or more are a quorum.
 *
 * @throws TypeError if a client does not reveal its connection, or if holdfast cannot connect in the same way.
 * @internal
 */
export function readClients(clients: readonly unknown[]): Whereabouts {
  if (clients.length > 0 && clients.every(isMock)) return inMemory(clients[0]);
  const places = clients.map((client, i) => readClient(client, `client ${i + 1}`));
  const [first] = places as [Place];
  if (places.length === 1) return first;
  if (clients.length < QUORUM_MIN || clients.length > QUORUM_MAX) {
    const why = clients.length > QUORUM_MAX ? 'more are slow' : 'two stop when one of them does';
    const what = `a quorum is ${QUORUM_MIN} to ${QUORUM_MAX} servers (${why}), got ${clients.length} clients`;
    throw refuse(what, 'pass one client, or three');
  }
  const { prefix, tls } = first.options;
  const servers = places.map(({ target, options }, i) => {
    const which = `client ${i + 1} of ${places.length}`;
    if ('cluster' in target || 'sentinels' in target) {
      throw refuse(`${which} is not that of a single server`, 'a quorum is of single servers');
    }
    if (options.prefix !== prefix) {
      throw refuse(`${which} has another keyPrefix than the first`, 'give all of them one');
    }
    if (JSON.stringify(options.tls) !== JSON.stringify(tls)) {
      throw refuse(`${which} has another "tls" than the first`, 'give all of them one');
    }
    return target;
  });
  // As with redlock: a server has a vote as soon as it has started. See docs/redlock.md.
  return { target: { quorum: servers }, options: { ...first.options, longestLease: 0 } };
}

/** Whether it is a client of ioredis-mock, which keeps its data in this process. @internal */
export function isMock(client: unknown): boolean {
  const given = bag(client);
  const isIoredis = typeof given['defineCommand'] === 'function';
  // A client that is connected has a connector.
  if (!isIoredis || given['connector'] !== undefined) return false;
  // Its Cluster has a class without a name, and a service may have a subclass; ioredis knows no such option.
  if (typeof bag(given['options'])['notifyKeyspaceEvents'] === 'string') return true;
  return /RedisMock$/.test(`${(client as object).constructor?.name}`);
}

/** The store in place of the data of a mock; one for all mocks of an address, as they have it themselves. */
function inMemory(mock: unknown): Whereabouts {
  const { host = 'localhost', port = 6379, db = 0, keyPrefix } = bag(bag(mock)['options']);
  const message =
    'the client is a mock of ioredis, so locks are kept in the memory of this process, beside the data of the mock';
  if (!isWarned) process.emitWarning(message, { type: 'HoldfastWarning', code: 'WARN_LOCK_MOCK' });
  isWarned = true;
  const target = `memory:${encodeURIComponent(`mock-${host}-${port}-${db}`)}`;
  return { target, options: { prefix: prefixOf(keyPrefix) } };
}

let isWarned = false;

/**
 * The same place with another database, if that is given. A Cluster has only one; the data of a mock are in none.
 *
 * @internal
 */
export function inDatabase(where: Whereabouts, db: number | undefined): Whereabouts {
  const { target, options } = where;
  if (db === undefined || typeof target === 'string' || 'cluster' in target) return where;
  if (!('quorum' in target)) return { target: { ...target, db }, options };
  const quorum = target.quorum.map((server) =>
    typeof server === 'string' ? server : { ...server, db },
  );
  return { target: { ...target, quorum }, options };
}

/** Describes a value that is no client by its class. */
function kindOf(given: unknown): string {
  if (typeof given !== 'object' || given === null) return `${given}`;
  return `an object of the class ${given.constructor?.name ?? 'null'}`;
}

/** Reads one client; `who` is its name in the error. @internal */
export function readClient(given: unknown, who: string): Place {
  const client = bag(given);
  const parts = readIoredis(client) ?? readNodeRedis3(client) ?? readNodeRedis(client);
  if (parts !== undefined) return placeOf(parts);
  const what = `${who} does not reveal the address of its server: it is ${kindOf(given)}`;
  const cure =
    'a Redis or Cluster of ioredis, a client or cluster of node-redis, and in tests ioredis-mock do';
  throw refuse(what, cure);
}
