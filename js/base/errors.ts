/**
 * The errors of holdfast, as classes under one base. Match on `code` or with `instanceof`: both work
 * across two copies of the package.
 *
 * @packageDocumentation
 */

/** The property of a class that has the symbol of its instances. */
const BRAND: unique symbol = Symbol('holdfast.brand');

type Branded = { readonly [BRAND]?: symbol };

/** Marks the instances of `target` in a way that another copy of this package recognises. */
function brand(target: { prototype: object }, code: string): void {
  const symbol = Symbol.for(`holdfast.error.${code}`);
  Object.defineProperty(target, BRAND, { value: symbol });
  Object.defineProperty(target.prototype, symbol, { value: true });
}

/**
 * The base of all errors of holdfast that are not about bad arguments.
 *
 * @example
 * ```ts
 * try {
 *   await locks.acquire('item:42', { wait: 1_000 })
 * } catch (error) {
 *   if (error instanceof LockError) console.error(error.code, error.lock)
 * }
 * ```
 */
export class LockError extends Error {
  /** The kind of error; stable across versions. */
  readonly code: string;
  /** The lock's name, if the error is about one. */
  readonly lock: string | undefined;

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(code: string, message: string, lock?: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.lock = lock;
  }

  /**
   * Recognises errors of another copy of the package. A user's subclass has no brand of its own,
   * so `instanceof` means what it always does.
   *
   * @hidden
   */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: a subclass inherits this method and asks for itself
    const self = this as unknown as Branded;
    const own = Object.hasOwn(self, BRAND) ? self[BRAND] : undefined;
    if (own === undefined) {
      return Function.prototype[Symbol.hasInstance].call(self, value);
    }
    return typeof value === 'object' && value !== null && own in value;
  }
}

/**
 * The manager was closed before the operation could end.
 *
 * @example
 * ```ts
 * await locks.close()
 * await locks.acquire('item:42').catch((error) => {
 *   console.log(error instanceof LockClosedError) // true
 * })
 * ```
 */
export class LockClosedError extends LockError {
  declare readonly code: 'ERR_LOCK_CLOSED';

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, lock?: string) {
    super('ERR_LOCK_CLOSED', message, lock);
  }
}

/**
 * The server could not be reached, or did not answer in time. The server may have executed the request nevertheless; a
 * lock that it may have granted is released as soon as it can be reached.
 *
 * @example
 * ```ts
 * await connect('redis://127.0.0.1:1').catch((error) => {
 *   console.log(error instanceof LockConnectionError, error.code) // true ERR_LOCK_CONNECTION
 * })
 * ```
 */
export class LockConnectionError extends LockError {
  declare readonly code: 'ERR_LOCK_CONNECTION';

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, lock?: string, options?: ErrorOptions) {
    super('ERR_LOCK_CONNECTION', message, lock, options);
  }
}

/**
 * The native addon could not be loaded. `cause` is the loader's own error.
 *
 * @example
 * ```ts
 * const { connect } = await import('holdfast').catch((error) => {
 *   if (error.code === 'ERR_LOCK_NATIVE_LOAD') console.error(error.message, error.cause)
 *   throw error
 * })
 * ```
 */
export class LockLoadError extends LockError {
  declare readonly code: 'ERR_LOCK_NATIVE_LOAD';

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, cause: unknown) {
    super('ERR_LOCK_NATIVE_LOAD', message, undefined, { cause });
  }
}

/**
 * How a lock was lost: `expired`, its lease ended or its key was deleted; `stalled`, its lease ended because the event
 * loop was blocked for `stallTimeout`; `maxHold`, it was held for `maxHold`; `stolen`, another client took it by
 * `steal` or freed it by `forceRelease`; `adopted`, another process adopted it; `closed`, its manager was closed;
 * `released`, the caller had released it.
 *
 * @example
 * ```ts
 * locks.on('lost', (lock, { reason }) => {
 *   if (reason === 'expired') console.error(`${lock.name} may have had two holders`)
 * })
 * ```
 */
export type LockLostReason =
  | 'adopted'
  | 'closed'
  | 'expired'
  | 'maxHold'
  | 'released'
  | 'stalled'
  | 'stolen';

/**
 * The lock is not held any more.
 *
 * @example
 * ```ts
 * const lock = await locks.acquire('item:42')
 * lock.signal.addEventListener('abort', () => {
 *   const { reason } = lock.signal   // a LockLostError
 *   console.error(reason.message, reason.reason)
 * })
 * ```
 */
export class LockLostError extends LockError {
  declare readonly code: 'ERR_LOCK_LOST';
  /** How the lock was lost. */
  readonly reason: LockLostReason;
  /** The result of the callback of `request`, if the lock was lost while it ran. */
  readonly result: unknown;

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, lock: string, reason: LockLostReason, result?: unknown) {
    super('ERR_LOCK_LOST', message, lock);
    this.reason = reason;
    this.result = result;
  }
}

/**
 * One server of a quorum, and whether it failed.
 *
 * @example
 * ```ts
 * const urls = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3']
 * await connect({ quorum: urls }).catch(({ servers }) => {
 *   for (const { server, cause } of servers) console.error(server, cause ?? 'ok')
 * })
 * ```
 */
export interface QuorumServer {
  /** The server, without login. */
  readonly server: string;
  /** Why the server failed; undefined if it did not. */
  readonly cause: string | undefined;
}

/**
 * No majority of the servers of a quorum could be reached in time; `servers` has the cause for each. Some of the
 * servers may have executed the request; it is undone on each of them as soon as that server can be reached. If another
 * client holds the lock, the error is a `LockTimeoutError`, as on one server.
 *
 * @example
 * ```ts
 * const urls = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3']
 * await connect({ quorum: urls }).catch((error) => {
 *   console.log(error instanceof LockQuorumError, error.servers.length) // true 3
 * })
 * ```
 */
export class LockQuorumError extends LockError {
  declare readonly code: 'ERR_LOCK_QUORUM';
  /** Every server, in the order in which they were named. */
  readonly servers: readonly QuorumServer[];

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, servers: readonly QuorumServer[], lock?: string) {
    super('ERR_LOCK_QUORUM', message, lock);
    this.servers = servers;
  }
}

/**
 * The server refused the request.
 *
 * @example
 * ```ts
 * try {
 *   await locks.acquire('item:42')
 * } catch (error) {
 *   if (error instanceof LockServerError) console.error(error.serverCode, error.key)
 * }
 * ```
 */
export class LockServerError extends LockError {
  declare readonly code: 'ERR_LOCK_SERVER';
  /** The first word of the server's error, such as `WRONGTYPE`, `NOPERM` or `OOM`. */
  readonly serverCode: string;
  /** The Redis key that the refusal is about, if any. */
  readonly key: string | undefined;

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(message: string, serverCode: string, key?: string, lock?: string) {
    super('ERR_LOCK_SERVER', message, lock);
    this.serverCode = serverCode;
    this.key = key;
  }
}

/**
 * The lock was not free for as long as the caller was ready to wait.
 *
 * @example
 * ```ts
 * const held = await others.acquire('item:42', { label: 'shop-3' })
 * await locks.acquire('item:42', { wait: 1_000 }).catch((error) => {
 *   console.log(error instanceof LockTimeoutError, error.holderLabel, error.position) // true shop-3 1
 * })
 * ```
 */
export class LockTimeoutError extends LockError {
  declare readonly code: 'ERR_LOCK_TIMEOUT';
  /** How long the caller waited, in ms. */
  readonly waited: number;
  /**
   * The label of the holder: by default its host name and process id; undefined if it has none. Of a lock that is shared,
   * it is one of the holders, and the message tells how many there are: the one whose share ends first if the caller wanted
   * a share, else the one whose share ends last.
   */
  readonly holderLabel: string | undefined;
  /** For how long the holder has held the lock, in ms, if it is a caller of the same manager; no server knows it. */
  readonly heldFor: number | undefined;
  /** The rest of the holder's lease when last read, in ms; undefined if it never ends by itself. */
  readonly remaining: number | undefined;
  /**
   * The caller's last known position in the wait queue, 1 for the next; undefined if it was not queued. The
   * waiters of one other process count as one.
   */
  readonly position: number | undefined;

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(
    message: string,
    lock: string,
    details: {
      readonly waited: number;
      readonly holderLabel?: string | undefined;
      readonly heldFor?: number | undefined;
      readonly remaining?: number | undefined;
      readonly position?: number | undefined;
    },
  ) {
    super('ERR_LOCK_TIMEOUT', message, lock);
    this.waited = details.waited;
    this.holderLabel = details.holderLabel;
    this.heldFor = details.heldFor;
    this.remaining = details.remaining;
    this.position = details.position;
  }
}

/**
 * A resource refused this owner of a lock, since a later owner has used the resource already. Nothing was written. Undo
 * what can be undone, and acquire the lock again if the work is still needed: the same fence will be refused again. The
 * guards of `holdfast/fence` throw it, and so may code that checks fences by itself.
 *
 * @example
 * ```ts
 * await locks.request('item:42', async ({ name, fence }) => {
 *   const { rowCount } = await db.query(
 *     'UPDATE stock SET n = n - 1, fence = $1 WHERE id = 42 AND fence < $1',
 *     [fence],
 *   )
 *   if (rowCount === 0) throw new StaleFenceError(`a later owner of "${name}" was there`, name, { fence })
 * })
 * ```
 */
export class StaleFenceError extends LockError {
  declare readonly code: 'ERR_LOCK_STALE_FENCE';
  /** The fence that was refused. */
  readonly fence: number;
  /** The greatest fence that the resource has seen, if it reported that. */
  readonly seen: number | undefined;

  /** Called by holdfast, by code that checks fences, and by tests of a service that handles the error. */
  constructor(
    message: string,
    lock: string,
    details: { readonly fence: number; readonly seen?: number | undefined },
  ) {
    super('ERR_LOCK_STALE_FENCE', message, lock);
    this.fence = details.fence;
    this.seen = details.seen;
  }
}

/**
 * The body of `runOnce` has ended well, but its slot may not be marked as done, so with `retry` another caller may run it
 * again; or without `retry`, the slot is done, but the result of `keepResult` may not be kept. `cause` is the reason: no
 * answer, a refusal, a mark that was released by force, or a lock that the body has released itself.
 *
 * @example
 * ```ts
 * const options = { slot: '2026-01-31', retry: true }
 * await locks.runOnce('invoices', options, async () => settle()).catch((error) => {
 *   if (!(error instanceof LockUnmarkedError)) throw error
 *   console.warn(error.message, error.slot, error.result)   // the work itself is done
 * })
 * ```
 */
export class LockUnmarkedError extends LockError {
  declare readonly code: 'ERR_LOCK_UNMARKED';
  /** The name of the slot. */
  readonly slot: string;
  /** The return value of the body. */
  readonly result: unknown;

  /** Called by holdfast, and by tests of a service that handles the error. */
  constructor(
    message: string,
    lock: string,
    details: { readonly slot: string; readonly result?: unknown; readonly cause?: unknown },
  ) {
    super('ERR_LOCK_UNMARKED', message, lock, { cause: details.cause });
    this.slot = details.slot;
    this.result = details.result;
  }
}

const CLASSES = {
  LockError: [LockError, 'ERR_LOCK'],
  LockClosedError: [LockClosedError, 'ERR_LOCK_CLOSED'],
  LockConnectionError: [LockConnectionError, 'ERR_LOCK_CONNECTION'],
  LockLoadError: [LockLoadError, 'ERR_LOCK_NATIVE_LOAD'],
  LockLostError: [LockLostError, 'ERR_LOCK_LOST'],
  LockQuorumError: [LockQuorumError, 'ERR_LOCK_QUORUM'],
  LockServerError: [LockServerError, 'ERR_LOCK_SERVER'],
  LockTimeoutError: [LockTimeoutError, 'ERR_LOCK_TIMEOUT'],
  LockUnmarkedError: [LockUnmarkedError, 'ERR_LOCK_UNMARKED'],
  StaleFenceError: [StaleFenceError, 'ERR_LOCK_STALE_FENCE'],
} as const;

for (const [name, [target, code]] of Object.entries(CLASSES)) {
  brand(target, code);
  Object.defineProperty(target.prototype, 'name', {
    value: name,
    configurable: true,
    writable: true,
  });
}

/**
 * Whether a release failed only for now: the core repeats it, and the lease ends in any case.
 *
 * @internal
 */
export function isUnreachable(error: unknown): boolean {
  return error instanceof LockConnectionError || error instanceof LockQuorumError;
}

/**
 * A `TypeError` or `RangeError` about an argument, with Node's own codes.
 *
 * @internal
 */
export function argumentError(
  kind: 'ERR_INVALID_ARG_TYPE' | 'ERR_INVALID_ARG_VALUE' | 'ERR_OUT_OF_RANGE',
  message: string,
): Error {
  const error = kind === 'ERR_OUT_OF_RANGE' ? new RangeError(message) : new TypeError(message);
  return Object.assign(error, { code: kind });
}
