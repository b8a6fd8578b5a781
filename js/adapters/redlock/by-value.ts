/**
 * Locks of other processes, with holdfast or with node-redlock 5, of which this process has the value alone. The
 * service's own clients release and extend them.
 */

import { LockLostError } from '../../base/errors.js';
import { evaluate } from '../../base/evaluate.js';
import { clientOf } from '../../base/tokens.js';
import { checkTarget } from '../../connect/check-target.js';
import { isNodeRedis3 } from '../../connect/clients/node-redis3.js';
import { bag } from '../../connect/clients/place.js';
import { readClients } from '../../connect/clients/read-clients.js';
import type { LockManager } from '../../manager/manager.js';
import { locked, ResourceLockedError } from './errors.js';
import { validFor } from './settings.js';
import { releasedOf, statsOf } from './tally.js';
import type { Client, ExecutionStats } from './votes.js';

/**
 * The beginning of both scripts: whether ARGV[1] owns KEYS[1]. The value of a lock of holdfast has a mark behind the
 * token while a waiter is queued.
 *
 * @internal
 */
export const OWNS = `
local token, holder = ARGV[1], redis.call('GET', KEYS[1])
local ours = token:sub(1, 4) == 'hf1.'
if holder ~= token and not (ours and holder == token .. '+') then return 0 end
`;
/** @internal */
export const RELEASE = `${OWNS}return redis.call('DEL', KEYS[1])`;
/** ARGV[2]: the least length of the lease, in ms. */
const EXTEND = `${OWNS}
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1`;

/** Names a key that the user may read. Whatever it holds, the server has answered. */
const REACHED = `redis.pcall('GET', KEYS[1]) return 1`;

/** One key, and the token that its lock has. @internal */
export interface Share {
  readonly key: string;
  readonly token: string;
}

/** The value of a lock on several resources has the tokens of all, in order. */
const BETWEEN_TOKENS = ',';

/** The value of a lock, by the tokens of its resources. @internal */
export function joinTokens(tokens: readonly string[]): string {
  return tokens.join(BETWEEN_TOKENS);
}

/** The resources of a lock with their tokens. node-redlock uses one token for all. */
function sharesOf(resources: readonly string[], value: string): Share[] {
  const tokens = value.split(BETWEEN_TOKENS);
  const several = tokens.length === resources.length;
  return resources.map((key, i) => ({ key, token: several ? (tokens[i] as string) : value }));
}

/** Where the service's own clients have the locks. @internal */
export interface Place {
  readonly clients: ReadonlySet<Client>;
  /** The database, if it may be another than that of the clients. */
  readonly db: number | undefined;
}

/** A lock, as far as its value goes. */
interface Valued {
  readonly resources: readonly string[];
  readonly value: string;
}

/**
 * Releases a lock by its value. One server's locks of holdfast are adopted with the manager that `open` answers, and then
 * released, so that their waiters get them at once.
 *
 * @internal
 */
export async function releaseByValue(
  { resources, value }: Valued,
  { clients, db }: Place,
  open: () => Promise<LockManager>,
): Promise<ExecutionStats> {
  const shares = sharesOf([...new Set(resources)], value);
  const ours = shares.every(({ token }) => clientOf(token) !== null);
  if (ours && clients.size === 1) {
    const manager = await open();
    const released = await Promise.all(shares.map((share) => adoptAndRelease(manager, share)));
    return releasedOf(clients, released.filter(Boolean).length, shares.length);
  }
  const stats = await everywhere(clients, shares, inDatabase(db, clients, RELEASE), []);
  const failure = failureOf(stats);
  if (stats.votesFor.size < stats.quorumSize && failure !== undefined) throw failure;
  return stats;
}

/** The least lease in ms of a lock between adopt and release: for as long as an answer may take. */
const BETWEEN_MS = 2_000;

async function adoptAndRelease(manager: LockManager, { key, token }: Share): Promise<boolean> {
  try {
    // If this process dies in between, the lock must not last longer for that.
    const hold = { renew: false, ttl: BETWEEN_MS };
    const lock = await manager.adopt({ name: key, token }, hold);
    return await lock.release();
  } catch (error) {
    if (error instanceof LockLostError) return false;
    throw error;
  }
}

/** Makes a lock last `duration` ms from now by its value, and answers for how many ms it is valid. @internal */
export async function extendByValue(
  { resources, value }: Valued,
  { clients, db }: Place,
  duration: number,
): Promise<number> {
  const start = performance.now();
  const shares = sharesOf([...new Set(resources)], value);
  const stats = await everywhere(clients, shares, inDatabase(db, clients, EXTEND), [`${duration}`]);
  if (stats.votesFor.size < stats.quorumSize) {
    throw (
      failureOf(stats) ?? lostOf(resources, checkTarget(readClients([...clients]).target).label)
    );
  }
  return Math.floor(validFor(duration) - (performance.now() - start));
}

/** A script in another database than that of the clients, which stay in their own. A Cluster has only one. */
function inDatabase(db: number | undefined, clients: ReadonlySet<Client>, script: string): string {
  if (db === undefined) return script;
  const isCluster = checkTarget(readClients([...clients]).target).cluster !== null;
  return isCluster ? script : `redis.call('SELECT', ${db})\n${script}`;
}

/** The error for a lock of another process that is not held any more. */
function lostOf(resources: readonly string[], server: string): LockLostError {
  const name = resources.join(', ');
  const what = `lock "${name}" on ${server} is not held any more by the value of this lock`;
  return new LockLostError(`${what}: acquire it again before the work continues`, name, 'expired');
}

/** The first vote against that has another reason than a lock that is not held. */
function failureOf({ votesAgainst }: ExecutionStats): Error | undefined {
  const others = [...votesAgainst.values()];
  return others.find((error) => !(error instanceof ResourceLockedError));
}

/** How long to wait for votes. @internal */
export interface Patience {
  /** After so many ms without an answer a client has voted against. */
  readonly limit: number;
  /** Whether the others are not waited for either once no majority can agree any more. */
  readonly endsWhenLost?: boolean;
}

const ENDLESS: Patience = { limit: Number.POSITIVE_INFINITY };

/**
 * Asks all clients, and waits for a majority that agrees, or for all answers.
 *
 * @internal
 */
export function everywhere(
  clients: ReadonlySet<Client>,
  shares: readonly Share[],
  script: string,
  args: readonly string[],
  { limit, endsWhenLost = false }: Patience = ENDLESS,
): Promise<ExecutionStats> {
  const { membershipSize, quorumSize } = statsOf(clients);
  const votesFor = new Set<Client>();
  const votesAgainst = new Map<Client, Error>();
  return new Promise((resolve) => {
    for (const client of clients) {
      void within(limit, ask(client, shares, script, args)).then((error) => {
        if (error === undefined) votesFor.add(client);
        else votesAgainst.set(client, error);
        const all = votesFor.size + votesAgainst.size === membershipSize;
        const isLost = endsWhenLost && votesAgainst.size > membershipSize - quorumSize;
        if (!all && !isLost && votesFor.size < quorumSize) return;
        resolve({ membershipSize, quorumSize, votesFor, votesAgainst });
      });
    }
  });
}

/** The answer of `vote`, or after `limit` ms an error. */
async function within(limit: number, vote: Promise<Error | undefined>): Promise<Error | undefined> {
  if (limit === Number.POSITIVE_INFINITY) return vote;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Error>((resolve) => {
    const error = new Error(`no answer within ${limit} ms`);
    // After a pause of the event loop timers come first: an answer that is there by then counts.
    timer = setTimeout(() => setImmediate(resolve, error), limit);
  });
  return Promise.race([vote, late]).finally(() => clearTimeout(timer));
}

/**
 * Waits as long as the service's own clients do for servers that are not up yet: until a majority answers, or too few are
 * left that could. Answers whether a majority did.
 *
 * @internal
 */
export async function areReachable(clients: ReadonlySet<Client>, key: string): Promise<boolean> {
  const shares = [{ key, token: '' }];
  const { votesFor, quorumSize } = await everywhere(clients, shares, REACHED, []);
  return votesFor.size >= quorumSize;
}

/** Why a client voted against, if it did. */
async function ask(
  client: Client,
  shares: readonly Share[],
  script: string,
  args: readonly string[],
): Promise<Error | undefined> {
  try {
    // One key per call: on a Cluster each may be in another slot.
    const answers = shares.map(({ key, token }) => run(client, script, key, [token, ...args]));
    const had = (await Promise.all(answers)).filter((answer) => answer === 1).length;
    return had < shares.length ? locked(had, shares.length) : undefined;
  } catch (error) {
    return error as Error;
  }
}

/** node-redis 3 has callbacks. */
interface Calling {
  eval(script: string, ...rest: unknown[]): void;
}

function run(client: Client, script: string, key: string, args: string[]): Promise<unknown> {
  if (!isNodeRedis3(bag(client))) return evaluate(client, script, [key], args);
  return new Promise((resolve, reject) => {
    const settle = (error: Error | null, answer: unknown) =>
      error === null ? resolve(answer) : reject(error);
    (client as unknown as Calling).eval(script, 1, key, ...args, settle);
  });
}
