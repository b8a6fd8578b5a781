import { EventEmitter } from 'node:events';
import { argumentError } from '../../base/errors.js';
import { ExecutionError, ResourceLockedError } from '../redlock/errors.js';
import { acquireBare, Redlock as Inner, BareLock as InnerLock } from '../redlock/redlock.js';
import { readText, withDefaults } from '../redlock/settings.js';
import type { Client } from '../redlock/votes.js';
import { LockError } from './errors.js';
import { Answer, type Callback, Disposer } from './promise.js';

/** The settings of a `Redlock`. */
export interface Options {
  /**
   * The share of a lock's duration by which clocks may differ: a lock counts as expired that much earlier.
   *
   * @default 0.01
   */
  readonly driftFactor?: number;
  /**
   * How often a failed attempt is repeated; `-1` is for ever.
   *
   * @default 10
   */
  readonly retryCount?: number;
  /**
   * The time between two attempts, in ms.
   *
   * @default 200
   */
  readonly retryDelay?: number;
  /**
   * The largest random deviation from that time, in ms.
   *
   * @default 100
   */
  readonly retryJitter?: number;
  /**
   * For the time of a migration, while instances of redlock run: a caller tries again after `retryDelay`, as redlock does,
   * and does not wait in the queue, so that old instances get their share of a busy lock.
   *
   * @default false
   */
  readonly besideOldCode?: boolean | undefined;
}

const SCRIPTS = ['lockScript', 'unlockScript', 'extendScript'];

/** Set by the class, whose private parts they use: a map would cost as much as the rest of a lock. */
let innerOf: (lock: Lock) => InnerLock | undefined;
let setInner: (lock: Lock, inner: InnerLock) => void;
let readValue: (lock: Lock) => string | null;
let setValue: (lock: Lock, value: string | null) => void;

/** As of a lock of `holdfast/redlock`: read late, and a property of each lock. */
const VALUE: PropertyDescriptor & ThisType<Lock> = {
  configurable: true,
  enumerable: true,
  get() {
    return readValue(this);
  },
  set(value: string | null) {
    setValue(this, value);
  },
};

/**
 * Resources that are locked until `expiration`.
 *
 * @example
 * ```ts
 * const lock = await redlock.lock('item:42', 1_000)
 * await lock.unlock()
 * ```
 */
export class Lock {
  /** The `Redlock` that releases and extends the lock. */
  readonly redlock: Redlock;
  /** The names of the locked resources. */
  resource: string[];
  /** The value of each of these keys in Redis. */
  declare value: string | null;
  /** The time until which the lock is held, by `Date.now()`; 0 after its release. */
  expiration: number;
  /** The number of attempts that the acquire took. */
  attempts: number;
  /** The number of attempts that were left. */
  attemptsRemaining: number;
  #value: string | null;
  /** The lock of holdfast, if this process has acquired it. */
  #inner: InnerLock | undefined;

  constructor(
    redlock: Redlock,
    resource: string[],
    value: string | null,
    expiration: number,
    attempts: number,
    attemptsRemaining: number,
  ) {
    this.redlock = redlock;
    this.resource = resource;
    this.#value = value;
    this.expiration = expiration;
    this.attempts = attempts;
    this.attemptsRemaining = attemptsRemaining;
    Object.defineProperty(this, 'value', VALUE);
  }

  static {
    // Some services make plain objects of locks.
    innerOf = (lock) => (#inner in lock ? lock.#inner : undefined);
    setInner = (lock: Lock | { value: string | null }, inner) => {
      if (#inner in lock) {
        lock.#inner = inner;
        lock.#value = null;
      } else {
        lock.value = inner.value;
      }
    };
    readValue = (lock) => {
      lock.#value ??= lock.#inner?.value ?? null;
      return lock.#value;
    };
    setValue = (lock, value) => {
      if (value !== lock.value) lock.#inner = undefined;
      lock.#value = value;
    };
  }

  /** Releases the lock: `redlock.unlock(lock)`. */
  unlock(callback?: Callback<void>): Answer<void> {
    return this.redlock.unlock(this, callback);
  }

  /** Makes the lock last for `ttl` ms from now: `redlock.extend(lock, ttl)`. */
  extend(ttl: number, callback?: Callback<Lock>): Answer<Lock> {
    return this.redlock.extend(this, ttl, callback);
  }
}

/**
 * `Redlock` of redlock 4, on holdfast: locks that exclude those of redlock 4 and 5. It reads the addresses of the
 * clients, and opens a connection of its own on first use, which closes with the clients. `docs/redlock.md` lists the
 * differences.
 *
 * @example
 * ```ts
 * const Redlock = require('holdfast/redlock4')
 *
 * const redlock = new Redlock([client], { retryCount: 5 })
 * redlock.on('clientError', log.warn)
 * const lock = await redlock.lock('item:42', 1_000)
 * await lock.unlock()
 * ```
 */
export class Redlock extends EventEmitter {
  /** The errors of `lock`, `unlock` and `extend`. */
  static readonly LockError: typeof LockError = LockError;
  /** The class of the locks. */
  static readonly Lock: typeof Lock = Lock;

  /** The service's own clients. */
  readonly servers: readonly Client[];
  /** See `Options`. */
  readonly driftFactor: number;
  /** See `Options`. */
  readonly retryCount: number;
  /** See `Options`. */
  readonly retryDelay: number;
  /** See `Options`. */
  readonly retryJitter: number;
  readonly #besideOldCode: boolean;
  #inner: Inner | undefined;

  /**
   * @param clients - One client of ioredis or node-redis for one server, one Cluster or the master of Sentinels;
   *   three to fifteen for a quorum of independent servers.
   * @param options - See `Options` for defaults and units.
   *   A client that does not reveal its address, or is connected in a way that holdfast does not support, is refused by the
   *   first lock: the `cause` of its error says which client, and what to do.
   */
  constructor(clients: readonly Client[], options: Options = {}) {
    super();
    if (clients.length === 0) {
      throw new Error('Redlock must be instantiated with at least one redis server.');
    }
    const script = SCRIPTS.find((name) => (options as Record<string, unknown>)[name] !== undefined);
    if (script !== undefined) {
      const message = `redlock: "${script}" is not supported: holdfast depends on its own scripts; leave it out`;
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
    this.servers = clients;
    const { driftFactor, retryCount, retryDelay, retryJitter, besideOldCode } =
      withDefaults(options);
    this.driftFactor = driftFactor;
    this.retryCount = retryCount;
    this.retryDelay = retryDelay;
    this.retryJitter = retryJitter;
    this.#besideOldCode = besideOldCode === true;
  }

  /** That of redlock 5, made when it is first needed: some services make a `Redlock` for each request. */
  #redlock(): Inner {
    if (this.#inner !== undefined) return this.#inner;
    const { driftFactor, retryCount, retryDelay, retryJitter } = this;
    const besideOldCode = this.#besideOldCode;
    const settings = { driftFactor, retryCount, retryDelay, retryJitter, besideOldCode };
    const inner = new Inner(this.servers, settings);
    // A lock that another client has is no error of a client.
    inner.on('error', (error) => {
      if (!(error instanceof ResourceLockedError)) this.emit('clientError', error);
    });
    this.#inner = inner;
    return inner;
  }

  /** Ends the clients, and the connection beside them. Locks stay until they expire. */
  quit(callback?: Callback<unknown[]>): Answer<unknown[]> {
    const quit = async () => {
      await this.#redlock().quit();
      return this.servers.map(() => 'OK');
    };
    return Answer.of(quit()).nodeify(callback);
  }

  /**
   * Locks `resource`, or all of several, for `ttl` ms. While another client holds one of them, waits in the queue for
   * as long as the retries would take.
   *
   * @throws LockError if it failed; its `cause` says why.
   */
  lock(resource: string | string[], ttl: number, callback?: Callback<Lock>): Answer<Lock> {
    return Answer.of(this.#lock(namesOf(resource), ttl)).nodeify(callback);
  }

  /** The same as `lock`. */
  acquire(resource: string | string[], ttl: number, callback?: Callback<Lock>): Answer<Lock> {
    return this.lock(resource, ttl, callback);
  }

  /**
   * Does the same as `lock`, with its own `retryCount` and `retryDelay`. As in redlock 4, a zero counts as not given.
   */
  lockWithOptions(
    resource: string | string[],
    ttl: number,
    options: Pick<Options, 'retryCount' | 'retryDelay'>,
    callback?: Callback<Lock>,
  ): Answer<Lock> {
    return Answer.of(this.#lock(namesOf(resource), ttl, options)).nodeify(callback);
  }

  /** The same as `lockWithOptions`. */
  acquireWithOptions(
    resource: string | string[],
    ttl: number,
    options: Pick<Options, 'retryCount' | 'retryDelay'>,
    callback?: Callback<Lock>,
  ): Answer<Lock> {
    return this.lockWithOptions(resource, ttl, options, callback);
  }

  /**
   * The signature of redlock 3, which some services still use: a `value` extends the lock that has it.
   *
   * @internal
   */
  _lock(
    resource: string | string[],
    value: string | null,
    ttl: number,
    options: Pick<Options, 'retryCount' | 'retryDelay'> | Callback<Lock> = {},
    callback?: Callback<Lock>,
  ): Answer<Lock> {
    if (typeof options === 'function') return this._lock(resource, value, ttl, {}, options);
    if (value === null) return this.lockWithOptions(resource, ttl, options, callback);
    const names = [resource].flat();
    const named = new Lock(this, names, value, Number.POSITIVE_INFINITY, 1, this.retryCount - 1);
    return this.extend(named, ttl, callback);
  }

  /** A lock for `using` of Bluebird. `errorHandler` gets the error of a release that fails. */
  disposer(
    resource: string | string[],
    ttl: number,
    errorHandler: (error: unknown) => void = () => {},
  ): Disposer<Lock> {
    const lock = this.lock(resource, ttl);
    return new Disposer(lock, (acquired) => acquired.unlock().catch(errorHandler));
  }

  /**
   * Releases a lock.
   *
   * @throws LockError if the lock is not held any more, or was released before.
   */
  unlock(lock: Lock, callback?: Callback<void>): Answer<void> {
    // At once, not behind a promise.
    lock.expiration = 0;
    return Answer.of(this.#unlock(lock)).nodeify(callback);
  }

  /** The same as `unlock`. */
  release(lock: Lock, callback?: Callback<void>): Answer<void> {
    return this.unlock(lock, callback);
  }

  /**
   * Makes a lock last at least `ttl` ms from now.
   *
   * @returns The same lock.
   * @throws LockError if the lock has expired, or is not held any more.
   */
  extend(lock: Lock, ttl: number, callback?: Callback<Lock>): Answer<Lock> {
    return Answer.of(this.#extend(lock, ttl)).nodeify(callback);
  }

  async #lock(
    resource: string[],
    ttl: number,
    options?: Pick<Options, 'retryCount' | 'retryDelay'>,
  ): Promise<Lock> {
    const retryCount = options?.retryCount || this.retryCount;
    const retryDelay = options?.retryDelay || this.retryDelay;
    const settings = options && { retryCount, retryDelay };
    try {
      const duration = readText(ttl) as number;
      const inner = await acquireBare(this.#redlock(), resource, duration, settings);
      const { expiration, attempts } = inner;
      const left = retryCount - attempts.length;
      const lock = new Lock(this, resource, null, expiration, attempts.length, left);
      setInner(lock, inner);
      return lock;
    } catch (error) {
      const message = `Exceeded ${retryCount} attempts to lock the resource "${resource}".`;
      throw lockError(message, error);
    }
  }

  async #unlock(lock: Lock): Promise<void> {
    const inner = this.#innerOf(lock);
    const message = () => `Unable to fully release the lock on resource "${lock.resource}".`;
    let stats: Awaited<InnerLock['attempts'][number]> | undefined;
    try {
      const { attempts } = await this.#redlock().release(inner);
      stats = await attempts.at(-1);
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
      throw new LockError(message(), undefined, { cause: error.cause });
    }
    if (stats === undefined || stats.votesFor.size >= stats.quorumSize) return;
    const [cause] = stats.votesAgainst.values();
    throw new LockError(message(), undefined, { cause });
  }

  async #extend(lock: Lock, ttl: number): Promise<Lock> {
    if (lock.expiration < Date.now()) {
      const message = `Cannot extend lock on resource "${lock.resource}" because the lock has already expired.`;
      throw new LockError(message, 0);
    }
    try {
      const extended = await this.#redlock().extend(this.#innerOf(lock), readText(ttl) as number);
      lock.expiration = extended.expiration;
      setInner(lock, extended);
      return lock;
    } catch (error) {
      const message = `Exceeded ${this.retryCount} attempts to lock the resource "${lock.resource}".`;
      throw lockError(message, error);
    }
  }

  /** The lock that was acquired here, or else what its caller knows of it: one of another process, or one he changed. */
  #innerOf(lock: Lock): InnerLock {
    const known = innerOf(lock);
    if (known?.resources === lock.resource) return known;
    const resource = namesOf(lock.resource);
    if (known !== undefined && known.resources.join('\n') === resource.join('\n')) return known;
    return new InnerLock(this.#redlock(), resource, `${lock.value}`, [], lock.expiration);
  }
}

function namesOf(resource: string | readonly string[]): string[] {
  return typeof resource === 'string' ? [resource] : [resource].flat();
}

/** The error of an operation that was tried as often as the settings say. Passes errors about arguments on. */
function lockError(message: string, error: unknown): unknown {
  if (!(error instanceof ExecutionError)) return error;
  return new LockError(message, error.attempts.length, { cause: error.cause });
}
