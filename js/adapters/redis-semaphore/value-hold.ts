/**
 * A lock on several servers under an identifier that others know. A manager has its own values there, so the service's
 * clients set, renew and delete the keys, by the algorithm of redis-semaphore.
 */

import { setTimeout } from 'node:timers/promises';
import { LockLostError } from '../../base/errors.js';
import {
  areReachable,
  everywhere,
  OWNS,
  type Patience,
  RELEASE,
  type Share,
} from '../redlock/by-value.js';
import { ResourceLockedError } from '../redlock/errors.js';
import { validFor } from '../redlock/settings.js';
import type { Client, ExecutionStats } from '../redlock/votes.js';
import type { Checked } from './options.js';
import type { ServerLock } from './shared-hold.js';

/** ARGV: the value, and the lease in ms. */
const TAKE = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0`;
/** ARGV: the value, and the lease in ms, from now on and no longer. */
const EXPIRE = `${OWNS}
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`;

/** A server that takes longer to give a lock, or to take it back, has failed, in ms. */
const SERVER_MS = 100;
/** The same for the one server of a mutex. */
const ONE_SERVER_MS = 2_000;

/** How long an attempt for a lease of `ttl` ms waits for a server, in ms. */
function limitFor(ttl: number): number {
  return Math.max(1, Math.min(SERVER_MS, ttl / 10));
}

/** The relation of a value to a key. @internal */
export interface Place {
  readonly clients: readonly Client[];
  readonly key: string;
  readonly value: string;
}

/**
 * Makes a lock on one server, which its value holds, last for `ttl` ms and no longer. If the client does not answer, the
 * lease stays longer.
 *
 * @internal
 */
export async function shorten({ clients, key, value }: Place, ttl: number): Promise<void> {
  const share = [{ key, token: value }];
  await everywhere(new Set(clients), share, EXPIRE, [`${ttl}`], { limit: ONE_SERVER_MS });
}

/** @internal */
export class ValueHold implements ServerLock {
  readonly #clients: ReadonlySet<Client>;
  readonly #shares: readonly Share[];
  #until = 0;
  /** The clients whose servers have said no to the last request. */
  #denied: ReadonlySet<Client> = new Set();
  /** Whether a majority has answered it, with yes or no. */
  #isAnswered = false;

  private constructor({ clients, key, value }: Place) {
    this.#clients = new Set(clients);
    this.#shares = [{ key, token: value }];
  }

  /** Acquires it as the options say, or answers nothing. */
  static async acquire(
    place: Place,
    { lockTimeout, retries }: Checked,
    signal: AbortSignal | undefined,
  ): Promise<ValueHold | undefined> {
    const hold = new ValueHold(place);
    const end = performance.now() + retries.wait;
    // All answers are waited for: what is denied must not be undone.
    const patience = { limit: limitFor(lockTimeout) };
    let attempts = 0;
    let isConnected = false;
    while (attempts < retries.limit && performance.now() < end) {
      signal?.throwIfAborted();
      if (await hold.#sets(TAKE, lockTimeout, patience)) return hold;
      await hold.#undo();
      // What nobody has answered, since the clients were about to connect, was no attempt.
      const isCold = !isConnected && !hold.#isAnswered && (await hold.#isReachableBy(end, signal));
      isConnected = true;
      if (isCold) continue;
      attempts += 1;
      await setTimeout(retries.interval, undefined, { signal }).catch(() => {});
    }
    signal?.throwIfAborted();
    return undefined;
  }

  /** Takes it over from whoever holds it by this value, or answers nothing. */
  static async takeOver(
    place: Place,
    { lockTimeout, retries }: Checked,
  ): Promise<ValueHold | undefined> {
    const hold = new ValueHold(place);
    // The clients may be about to connect.
    const limit = Math.max(1, Math.min(lockTimeout, retries.wait));
    const patience = { limit, endsWhenLost: true };
    return (await hold.#sets(EXPIRE, lockTimeout, patience)) ? hold : undefined;
  }

  get held(): boolean {
    return performance.now() < this.#until;
  }

  async extend(ttl: number): Promise<void> {
    const left = this.#until - performance.now();
    const patience = { limit: Math.max(left, limitFor(ttl)), endsWhenLost: true };
    if (await this.#sets(EXPIRE, ttl, patience)) return;
    await this.release();
    const [{ key } = { key: '' }] = this.#shares;
    const what = `lock "${key}" is not held any more by this identifier on a majority of its servers`;
    throw new LockLostError(`${what}: acquire it again before the work continues`, key, 'expired');
  }

  async release(): Promise<void> {
    this.#until = 0;
    await this.#ask(RELEASE, [], { limit: SERVER_MS });
  }

  /** Gives back what an attempt has got, or may have got. Where the key was held, it may be another's under this value. */
  async #undo(): Promise<void> {
    const clients = new Set([...this.#clients].filter((client) => !this.#denied.has(client)));
    if (clients.size > 0)
      await everywhere(clients, this.#shares, RELEASE, [], { limit: SERVER_MS });
  }

  /** Whether a majority can be reached until `end`. */
  async #isReachableBy(end: number, signal: AbortSignal | undefined): Promise<boolean> {
    const [{ key } = { key: '' }] = this.#shares;
    const over = new AbortController();
    const signals = signal === undefined ? [over.signal] : [over.signal, signal];
    const late = setTimeout(Math.max(0, end - performance.now()), false, {
      signal: AbortSignal.any(signals),
    });
    const reached = areReachable(this.#clients, key);
    return Promise.race([reached, late.catch(() => false)]).finally(() => over.abort());
  }

  /** Whether a majority agrees while the lease lasts. Then the others get the value as well, if they can. */
  async #sets(script: string, ttl: number, patience: Patience): Promise<boolean> {
    const began = performance.now();
    const { votesFor, votesAgainst, quorumSize } = await this.#ask(script, [`${ttl}`], patience);
    const denials = [...votesAgainst].filter(([, error]) => error instanceof ResourceLockedError);
    this.#denied = new Set(denials.map(([client]) => client));
    this.#isAnswered = votesFor.size + denials.length >= quorumSize;
    const until = began + validFor(ttl);
    if (votesFor.size < quorumSize || performance.now() >= until) return false;
    this.#until = until;
    const others = new Set(votesAgainst.keys());
    if (others.size > 0) void everywhere(others, this.#shares, TAKE, [`${ttl}`], patience);
    return true;
  }

  #ask(script: string, args: readonly string[], patience: Patience): Promise<ExecutionStats> {
    return everywhere(this.#clients, this.#shares, script, args, patience);
  }
}
