import { EventEmitter } from 'node:events';
import {
  NewsCode,
  type Operation,
  OpKind,
  type Outcome,
  OutcomeCode,
  type Port,
} from './bridge.js';
import { traced, tracing } from './diagnostics.js';
import { argumentError, LockConnectionError, LockError, LockLostError } from './errors.js';
import { Lock } from './lock.js';
import { checkName, checkSlot } from './names.js';
import {
  type AcquireOptions,
  checkAcquireOptions,
  checkTryAcquireOptions,
  type Defaults,
  type RequestOptions,
  type TryAcquireOptions,
  type Wanted,
} from './options.js';
import { type Context, toError } from './outcome.js';
import { type LockStats, readStats } from './stats.js';

/** The events of a manager and what their listeners get. */
export interface LockManagerEvents {
  /** A lock was lost that had not been released. Its `signal` is aborted already. */
  lost: [lock: Lock, error: LockLostError];
  /** The connection broke. It is made anew at once; locks that are held stay held meanwhile. */
  disconnect: [error: LockConnectionError];
  /** There is a connection again. */
  reconnect: [];
  /**
   * Something makes the manager slower or less safe than it could be; `message` says what, and what to
   * do. Each once, not with every connection: `WARN_LOCK_POLLING`, the ACL forbids messages, so waiters
   * poll; `WARN_LOCK_EVICTION`, a server's `maxmemory-policy` may evict locks; `WARN_LOCK_REPLICA`, the
   * server is a replica; `WARN_LOCK_SAME_SERVER`, two servers of a quorum are one;
   * `WARN_LOCK_PERSISTENCE`, with `longestLease: 0`, one of them may forget locks when it restarts.
   * Without a listener it becomes a warning of the process.
   */
  warning: [warning: LockError];
}

/**
 * Takes locks on one server. One manager per process is enough: it carries any number of locks
 * over one connection. Made by `connect`.
 */
export class LockManager extends EventEmitter<LockManagerEvents> implements AsyncDisposable {
  readonly #port: Port;
  readonly #context: Context;
  readonly #defaults: Defaults;
  /** What an acquire without options wants. */
  readonly #wanted: Wanted;
  /** The warnings that were told. */
  readonly #warned = new Set<string>();
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(port: Port, context: Context, defaults: Defaults) {
    super();
    this.#port = port;
    this.#context = context;
    this.#defaults = defaults;
    this.#wanted = checkAcquireOptions(undefined, defaults);
    // Whoever awaits this manager must have had the time to listen.
    setImmediate(() => port.report(this.#onNews));
  }

  /**
   * Takes the lock `name`, waiting in line while somebody else holds it.
   *
   * @param name - 1 to 1024 bytes of UTF-8.
   * @returns The lock, held until it is released: its lease is renewed, unless `renew` is false.
   * @throws LockTimeoutError if somebody else held it for `wait` ms.
   * @throws LockConnectionError if the server gave no answer in time. Should it have granted the
   *   lock all the same, the lock is given back as soon as the server can be reached.
   * @throws LockServerError if the server refuses.
   * @throws LockClosedError if the manager is closed.
   * @throws TypeError, RangeError if an argument is not what it must be; nothing is sent.
   *
   * @example
   * ```ts
   * await using lock = await locks.acquire('item:42', { ttl: 10_000, wait: 5_000 })
   * ```
   */
  async acquire(name: string, options?: AcquireOptions): Promise<Lock> {
    this.#check(name);
    const wanted =
      options === undefined ? this.#wanted : checkAcquireOptions(options, this.#defaults);
    if (!tracing.acquire.hasSubscribers) {
      return this.#settle(name, wanted, await this.#begin(name, wanted));
    }
    return this.#traced(name, () => this.#acquire(name, wanted));
  }

  /**
   * Takes the lock `name` if it is free: one round trip, no waiting.
   *
   * @returns The lock, or `null` if somebody else holds it.
   * @throws as `acquire` does, but never `LockTimeoutError`.
   *
   * @example
   * ```ts
   * const lock = await locks.tryAcquire('cron:settle')
   * if (lock === null) return // another instance does it
   * ```
   */
  async tryAcquire(name: string, options?: TryAcquireOptions): Promise<Lock | null> {
    this.#check(name);
    const wanted = checkTryAcquireOptions(options, this.#defaults);
    return this.#traced(name, async () => {
      const outcome = await this.#begin(name, wanted);
      return outcome.code === OutcomeCode.Held ? null : this.#settle(name, wanted, outcome);
    });
  }

  /**
   * Runs `callback` while holding the lock `name`, and releases it when the callback has ended.
   *
   * @param callback - Gets the lock; `lock.signal` is aborted if it is lost while the callback runs.
   * @returns What the callback returns.
   * @throws Whatever the callback throws; its own error always wins.
   * @throws LockLostError if the lock was lost while the callback ran; `result` is what it returned.
   * @throws as `acquire` does.
   *
   * @example
   * ```ts
   * const left = await locks.request('item:42', async (lock) => sellOne(42, lock.fence))
   * ```
   */
  async request<T>(name: string, callback: (lock: Lock) => T): Promise<Awaited<T>>;
  async request<T>(
    name: string,
    options: RequestOptions | undefined,
    callback: (lock: Lock) => T,
  ): Promise<Awaited<T>>;
  async request<T>(
    name: string,
    ...rest: [(lock: Lock) => T] | [RequestOptions | undefined, (lock: Lock) => T]
  ): Promise<Awaited<T>> {
    this.#check(name);
    const [options, callback] = rest.length === 1 ? [undefined, rest[0]] : rest;
    checkCallback(callback);
    const wait = Number.POSITIVE_INFINITY;
    const wanted = checkAcquireOptions(options, this.#defaults, 'request', wait);
    const lock = await this.#traced(name, () => this.#acquire(name, wanted));
    return runUnder(lock, callback);
  }

  /** What this manager has counted, and what it does now. Costs next to nothing. */
  stats(): LockStats {
    return readStats(this.#port);
  }

  /**
   * Releases every lock that this manager holds, refuses what is under way with `LockClosedError`
   * and closes the connection. Waits for the server at most `commandTimeout` ms. May be called
   * again at any time; never rejects.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Closes the manager at the end of an `await using` scope. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    await this.#port.close();
  }

  #check(name: string): void {
    checkName(name);
    if (this.#context.sharded) checkSlot(this.#defaults.prefix + name);
  }

  #traced<T>(name: string, operation: () => Promise<T>): Promise<T> {
    return traced(tracing.acquire, name, this.#context.server, operation);
  }

  async #acquire(name: string, wanted: Wanted): Promise<Lock> {
    return this.#settle(name, wanted, await this.#begin(name, wanted));
  }

  #begin(name: string, wanted: Wanted): Promise<Outcome> {
    const { ttl, wait, maxHold, renew, stallTimeout, label, signal } = wanted;
    signal?.throwIfAborted();
    // A stall limit that never ends is longer than any process lives.
    const stallLimit = renew ? Math.min(stallTimeout, Number.MAX_SAFE_INTEGER) : -1;
    const numbers = [ttl, wait, maxHold, stallLimit, -1] as const;
    const operation = this.#port.begin(OpKind.Acquire, numbers, name, label);
    return signal === undefined ? operation.outcome : this.#endEarly(operation, signal);
  }

  /** Ends the operation when `signal` is aborted; the loser of that race leaves nothing behind. */
  async #endEarly(operation: Operation, signal: AbortSignal): Promise<Outcome> {
    const cancel = () => this.#port.cancel(operation);
    signal.addEventListener('abort', cancel, { once: true });
    const outcome = await operation.outcome;
    signal.removeEventListener('abort', cancel);
    if (signal.aborted) {
      if (isGrant(outcome)) {
        await this.#port.submit(OpKind.Release, [outcome.a]);
      }
      throw signal.reason;
    }
    return outcome;
  }

  /** The lock that was acquired, or the error that says why it was not. */
  #settle(name: string, { label }: Wanted, outcome: Outcome): Lock {
    if (!isGrant(outcome)) throw toError(outcome, this.#context, 'acquire', name);
    const { a: lease, b: fence } = outcome;
    const shown = outcome.text?.message ?? label;
    return new Lock(this.#port, this.#context, name, shown, lease, fence, this.#onLost);
  }

  readonly #onLost = (lock: Lock, error: LockLostError): void => {
    const { server } = this.#context;
    if (tracing.lost.hasSubscribers) {
      tracing.lost.publish({ lock: lock.name, server, error, holder: lock });
    }
    this.emit('lost', lock, error);
  };

  readonly #onNews = (code: number, text: string): void => {
    const { server } = this.#context;
    switch (code) {
      case NewsCode.Disconnected: {
        const message = `the connection to ${server} is gone: ${text}`;
        this.emit('disconnect', new LockConnectionError(message));
        break;
      }
      case NewsCode.Reconnected:
        this.emit('reconnect');
        break;
      case NewsCode.Deaf:
        this.#warn('WARN_LOCK_POLLING', `waiters on ${server} poll: ${text}${MESSAGES_ADVICE}`);
        break;
      case NewsCode.SameServer:
        this.#warn('WARN_LOCK_SAME_SERVER', `${text} are the same server${SAME_SERVER_ADVICE}`);
        break;
      case NewsCode.Eviction:
        this.#warn('WARN_LOCK_EVICTION', `${server} may evict locks: ${text}${EVICTION_ADVICE}`);
        break;
      case NewsCode.Forgets:
        this.#warn(
          'WARN_LOCK_PERSISTENCE',
          `${server} may forget locks: ${text}${PERSISTENCE_ADVICE}`,
        );
        break;
      case NewsCode.Replica:
        this.#warn('WARN_LOCK_REPLICA', `${server} takes no locks: ${text}${REPLICA_ADVICE}`);
        break;
    }
  };

  #warn(code: string, message: string): void {
    // Each connection tells again.
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    if (this.emit('warning', new LockError(code, message))) return;
    process.emitWarning(message, { type: 'HoldfastWarning', code });
  }
}

const SAME_SERVER_ADVICE =
  ', which so has two votes: a quorum is safe only on servers that fail one by one';

const MESSAGES_ADVICE =
  '; grant the ACL user subscribe, publish and pubsub on the channels &holdfast:* for hand-offs without delay';
const EVICTION_ADVICE =
  '; a lock that is evicted lets another in: set it to noeviction, or give locks a server of their own';
const PERSISTENCE_ADVICE =
  '; with longestLease: 0 it votes as soon as it has restarted, and may let another in: set appendonly yes and appendfsync always, or leave longestLease at its default';
const REPLICA_ADVICE = ' is a replica; connect to its primary, or wait until it is promoted';

function isGrant(outcome: Outcome): boolean {
  return outcome.code === OutcomeCode.Acquired || outcome.code === OutcomeCode.AcquiredAs;
}

/** Runs `callback`, releases, and reports a loss only if the callback has nothing worse to say. */
async function runUnder<T>(lock: Lock, callback: (lock: Lock) => T): Promise<Awaited<T>> {
  let result: Awaited<T>;
  try {
    result = await callback(lock);
  } catch (error) {
    await lock.release().catch(() => {});
    throw error;
  }
  const lost = lossOf(lock, result);
  await lock.release();
  if (lost !== undefined) throw lost;
  return result;
}

/** The loss of a lock that its callback has not released itself, with what the callback returned. */
function lossOf(lock: Lock, result: unknown): LockLostError | undefined {
  try {
    lock.assertHeld();
  } catch (error) {
    const { message, reason } = error as LockLostError;
    if (reason !== 'released') return new LockLostError(message, lock.name, reason, result);
  }
  return undefined;
}

function checkCallback(callback: unknown): asserts callback is (lock: Lock) => unknown {
  if (typeof callback !== 'function') {
    const got = callback === null ? 'null' : typeof callback;
    throw argumentError('ERR_INVALID_ARG_TYPE', `the callback must be a function, got ${got}`);
  }
}
