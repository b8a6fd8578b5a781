/** The settings of node-redlock 5, translated for holdfast. */

import { checkWhole, show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import { checkName, checkNames } from '../../base/names.js';
import { TTL_MS_MAX, TTL_MS_MIN } from '../../lock/times.js';

/** Settings of a `Redlock`, and of one of its operations. */
export interface Settings {
  /**
   * The share of a lock's duration by which clocks may differ: a lock counts as expired that much earlier.
   * A value below the default counts as the default.
   *
   * @default 0.01
   */
  readonly driftFactor: number;
  /**
   * How often an operation is retried. While another client has the lock, the caller waits in its queue for
   * as long as these retries would have taken: `retryCount` times `retryDelay`. After an error of the
   * connection the operation is retried this often. `-1` is for ever, `0` tries once.
   *
   * @default 10
   */
  readonly retryCount: number;
  /**
   * The time between two attempts, in ms.
   *
   * @default 200
   */
  readonly retryDelay: number;
  /**
   * The largest random deviation from that time, in ms.
   *
   * @default 100
   */
  readonly retryJitter: number;
  /**
   * A lock of `using` must last 100 ms longer than this, in ms. holdfast extends it at a third of its duration.
   *
   * @default 500
   */
  readonly automaticExtensionThreshold: number;
  /**
   * For the time of a migration, while instances of redlock run: `acquire` and `using` try again after `retryDelay`, as
   * redlock does, and do not wait in the queue, so that old instances get their share of a busy lock.
   *
   * @default false
   */
  readonly besideOldCode?: boolean | undefined;
  /**
   * The database of the locks, 0 to 15, as with `@sesamecare-oss/redlock`, which takes any other value for 0. On a Cluster it
   * has no meaning.
   *
   * @default that of the clients
   */
  readonly db?: number | undefined;
}

const DEFAULTS: Settings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

/** The drift that holdfast itself assumes. @internal */
export const DRIFT_FACTOR = 0.01;

/** Fills in defaults for settings that are no numbers: for an operation, those of its `Redlock`. @internal */
export function withDefaults(given: Partial<Settings>, defaults: Settings = DEFAULTS): Settings {
  const pick = (key: Exclude<keyof Settings, 'besideOldCode' | 'db'>): number => {
    const value = given[key];
    return typeof value === 'number' && !Number.isNaN(value) ? value : defaults[key];
  };
  return {
    driftFactor: pick('driftFactor'),
    retryCount: pick('retryCount'),
    retryDelay: pick('retryDelay'),
    retryJitter: pick('retryJitter'),
    automaticExtensionThreshold: pick('automaticExtensionThreshold'),
    ...((given.besideOldCode ?? defaults.besideOldCode) === true ? { besideOldCode: true } : {}),
    ...databaseOf(given.db ?? defaults.db),
  };
}

/** The largest database that the fork selects. */
const FORK_DB_MAX = 15;

function databaseOf(given: unknown): { readonly db?: number } {
  if (given === undefined || given === null) return {};
  const isWhole = Number.isInteger(given) && Number(given) >= 0 && Number(given) <= FORK_DB_MAX;
  return { db: isWhole ? Number(given) : 0 };
}

/** The largest number of attempts of an operation. @internal */
export function attemptsMax({ retryCount }: Settings): number {
  return retryCount === -1 ? Number.POSITIVE_INFINITY : retryCount + 1;
}

/** How long an attempt waits in the queue, in whole ms: as long as all retries take; `null` for not at all. @internal */
export function patience(settings: Settings): number | null {
  const retries = attemptsMax(settings) - 1;
  if (retries <= 0 || settings.besideOldCode) return null;
  // An attempt takes some time even if there is no delay.
  const sum = Math.round(retries * Math.max(1, meanDelay(settings)));
  // Some services mean for ever by the largest number.
  return Number.isSafeInteger(sum) ? sum : Number.POSITIVE_INFINITY;
}

/** The number of attempts since `start` that would have been refused. @internal */
export function attemptsWithin(start: number, settings: Settings): number {
  return Math.floor((performance.now() - start) / Math.max(1, meanDelay(settings)));
}

/** The mean of `nextDelay`, which is never below zero. */
function meanDelay({ retryDelay: delay, retryJitter: jitter }: Settings): number {
  return delay >= jitter ? Math.max(0, delay) : Math.max(0, delay + jitter) ** 2 / (4 * jitter);
}

/** The time until the next attempt, in ms. @internal */
export function nextDelay({ retryDelay, retryJitter }: Settings): number {
  return Math.max(0, retryDelay + Math.floor((Math.random() * 2 - 1) * retryJitter));
}

/** The time at which a lock counts as expired that holdfast holds for `remaining` ms. @internal */
export function expirationOf(remaining: number, duration: number, { driftFactor }: Settings) {
  const more = Math.max(0, Math.round((driftFactor - DRIFT_FACTOR) * duration));
  return Date.now() + remaining - more;
}

/** How long a lock is valid that was requested just now. @internal */
export function validFor(duration: number): number {
  return duration - Math.round(DRIFT_FACTOR * duration) - 2;
}

/** The number that a text says, as of a variable of the environment; anything else as it is. @internal */
export function readText(value: unknown): unknown {
  return typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
}

/** Checks a duration, and answers the lease that stands for it. @internal */
export function checkDuration(duration: number): number {
  if (Math.floor(duration) !== duration) {
    throw new Error('Duration must be an integer value in milliseconds.');
  }
  checkWhole(duration, 'duration', 1, TTL_MS_MAX);
  return leaseOf(duration);
}

let isWarned = false;

/** The lease for a length of time that the caller of a drop-in wants, in ms: the shortest of holdfast if that is longer. @internal */
export function leaseOf(wanted: number): number {
  if (wanted >= TTL_MS_MIN) return wanted;
  const message = `a lease of ${wanted} ms was asked for, and such leases last ${TTL_MS_MIN} ms: it is the shortest of holdfast`;
  if (!isWarned) {
    process.emitWarning(message, { type: 'HoldfastWarning', code: 'WARN_LOCK_SHORT_LEASE' });
  }
  isWarned = true;
  return TTL_MS_MIN;
}

/** Checks the resources, and drops duplicates. @internal */
export function checkResources(resources: unknown): string[] {
  if (!Array.isArray(resources)) {
    const message = `resources must be a list of names, got ${show(resources)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  // A set would cost as much as the other checks.
  if (resources.length === 1) {
    const [name] = resources;
    checkName(name);
    return [name];
  }
  const names = [...new Set(resources)];
  checkNames(names);
  return names;
}
