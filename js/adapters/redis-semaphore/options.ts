/** The options of redis-semaphore, and their checks. */

import { randomUUID } from 'node:crypto';
import { show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import { clientOf, termsOf, writeToken } from '../../base/tokens.js';
import { leaseOf, readText } from '../redlock/settings.js';

/** Times of a lock, in ms. */
export interface TimeoutOptions {
  /**
   * How long the lock stays held if this process dies. Less than 50 counts as 50, with one warning.
   *
   * @default 10000
   */
  readonly lockTimeout?: number | undefined;
  /**
   * How long to wait while others hold the lock.
   *
   * @default 10000
   */
  readonly acquireTimeout?: number | undefined;
  /**
   * The largest number of attempts. The caller waits no longer than these attempts would take, with `retryInterval`
   * between them. With `1` it does not wait.
   *
   * @default Infinity
   */
  readonly acquireAttemptsLimit?: number | undefined;
  /**
   * The time between two of the attempts that `acquireAttemptsLimit` counts. With `besideOldCode`, the time between two
   * attempts.
   *
   * @default 10
   */
  readonly retryInterval?: number | undefined;
  /**
   * `0` leaves the lock to expire after `lockTimeout`. Any other number renews it, at a third of `lockTimeout`.
   *
   * @default 0.8 of lockTimeout
   */
  readonly refreshInterval?: number | undefined;
}

/** Options of a lock, without its callback. */
export interface HolderOptions extends TimeoutOptions {
  /**
   * For the time of a migration, while instances of redis-semaphore run: a mutex tries again after `retryInterval`, as
   * redis-semaphore does, and does not wait in the queue, so that old instances get their share of a busy lock. Has no
   * effect on a `Semaphore`.
   *
   * @default false
   */
  readonly besideOldCode?: boolean | undefined;
  /**
   * The name of the holder, by which another process can take over the lock. It must be unique among the callers for
   * this lock.
   *
   * @default a new one
   */
  readonly identifier?: string | undefined;
  /**
   * Whether to take over a lock that another process has acquired under `identifier`.
   *
   * @default false
   */
  readonly acquiredExternally?: boolean | undefined;
  /**
   * An end for the default `identifier`.
   *
   * @default ''
   */
  readonly identifierSuffix?: string | undefined;
  /**
   * `identifier` and `acquiredExternally` in one.
   *
   * @default undefined
   */
  readonly externallyAcquiredIdentifier?: string | undefined;
}

/** The defaults of the times. */
export const defaultTimeoutOptions = {
  lockTimeout: 10_000,
  acquireTimeout: 10_000,
  acquireAttemptsLimit: Number.POSITIVE_INFINITY,
  retryInterval: 10,
};

/** @internal */
export interface Checked {
  readonly lockTimeout: number;
  /** How long to wait; `null` for not at all. */
  readonly wait: number | null;
  /** Whether an attempt is made at all. */
  readonly tries: boolean;
  readonly renew: boolean;
  /** Given by the caller, so that others know it. */
  readonly identifier: string | undefined;
  readonly identifierSuffix: string;
  readonly acquiredExternally: boolean;
  /** How redis-semaphore itself tries again. */
  readonly retries: { readonly interval: number; readonly wait: number; readonly limit: number };
  /** Whether a mutex tries again by itself, and does not wait in the queue. */
  readonly besideOldCode: boolean;
  /** How often a lock is refreshed that no manager renews, in ms. */
  readonly refreshInterval: number;
}

/**
 * Without this check what is no number would be read as another choice: not to renew, or not to wait. A variable of the
 * environment is a text, which redis-semaphore takes for the number that it says.
 */
function readNumber(value: unknown, name: string, byDefault: number): number {
  if (value === undefined) return byDefault;
  const number = readText(value);
  if (typeof number === 'number' && !Number.isNaN(number)) return number;
  throw argumentError('ERR_INVALID_ARG_TYPE', `"${name}" must be a number, got ${show(value)}`);
}

/** @internal */
export function checkOptions(options: HolderOptions = {}): Checked {
  const { identifier, acquiredExternally = false, externallyAcquiredIdentifier: taken } = options;
  if (identifier !== undefined && (identifier === '' || typeof identifier !== 'string')) {
    throw new Error('identifier must be not empty random string');
  }
  if (acquiredExternally && identifier === undefined) {
    throw new Error('acquiredExternally=true meanless without custom identifier');
  }
  if (taken !== undefined && (identifier !== undefined || acquiredExternally)) {
    throw new Error('Invalid usage. Use custom identifier and acquiredExternally: true');
  }
  // Each by its name: to read a property whose name is a variable takes V8 as long as all the rest.
  const byDefault = defaultTimeoutOptions;
  const limit = readNumber(
    options.acquireAttemptsLimit,
    'acquireAttemptsLimit',
    byDefault.acquireAttemptsLimit,
  );
  const { acquireTimeout: timeout, lockTimeout: lease, retryInterval: interval } = options;
  const acquireTimeout = readNumber(timeout, 'acquireTimeout', byDefault.acquireTimeout);
  const lockTimeout = leaseOf(readNumber(lease, 'lockTimeout', byDefault.lockTimeout));
  const retryInterval = readNumber(interval, 'retryInterval', byDefault.retryInterval);
  const refreshDefault = Math.round(lockTimeout * 0.8);
  const refreshInterval = readNumber(options.refreshInterval, 'refreshInterval', refreshDefault);
  const retries = { interval: retryInterval, wait: acquireTimeout, limit };
  const wait = Math.ceil(limit === 1 ? 0 : Math.min(acquireTimeout, (limit - 1) * retryInterval));
  return {
    lockTimeout,
    wait: wait > 0 ? wait : null,
    tries: acquireTimeout > 0 && limit >= 1,
    renew: refreshInterval > 0,
    identifier: identifier ?? taken,
    identifierSuffix: options.identifierSuffix ?? '',
    acquiredExternally: acquiredExternally || taken !== undefined,
    retries,
    besideOldCode: options.besideOldCode === true,
    refreshInterval,
  };
}

/** How much of a lock an object wants: some permits of its limit, or all of it. @internal */
export interface Share {
  readonly limit: number | undefined;
  readonly permits: number | undefined;
}

/** A new UUID, with a suffix for people. @internal */
export function newIdentifier(suffix = ''): string {
  return suffix === '' ? randomUUID() : `${randomUUID()}-${suffix}`;
}

/**
 * The value in Redis that stands for an identifier: for a mutex the identifier, as with redis-semaphore, whose instances can
 * take it over by that. Permits are told apart by tokens of holdfast.
 *
 * @internal
 */
export function tokenFor(identifier: string, share: Share): string {
  if (clientOf(identifier) !== null && !identifier.includes(' ')) return identifier;
  if (share.limit === undefined && !identifier.startsWith('hf1.')) return identifier;
  return writeToken(Buffer.from(identifier).toString('base64url'), 1, severalOf(share));
}

/** Several permits stand in the token, so that the object which takes them over has as many. */
function severalOf({ limit = 0, permits = 1 }: Share): string {
  return permits > 1 ? termsOf(limit, permits) : '';
}
