/** The settings of node-redlock 5, and what they mean here. */

import { argumentError } from '../api/errors.js';
import { TTL_MS_MAX, TTL_MS_MIN } from '../api/options.js';
import { checkWhole, show } from '../internal/checks.js';
import { checkNames } from '../internal/names.js';

/** Settings of a `Redlock`, and of one of its operations. */
export interface Settings {
  /**
   * The share of a lock's duration by which clocks may differ: a lock counts as expired so much earlier.
   * Less than the default is as good as the default.
   *
   * @default 0.01
   */
  readonly driftFactor: number;
  /**
   * How often an operation is tried again. While somebody else has the lock, the caller waits in line for
   * as long as these retries would have taken: `retryCount` times `retryDelay`. After an error of the
   * connection it is tried again so often. `-1` is for ever, `0` tries once.
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
   * By how much that time differs at most, at random, in ms.
   *
   * @default 100
   */
  readonly retryJitter: number;
  /**
   * A lock of `using` must last 100 ms longer than this, in ms. It is extended at a third of its duration.
   *
   * @default 500
   */
  readonly automaticExtensionThreshold: number;
}

const DEFAULTS: Settings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

/** The drift that holdfast itself allows for. */
const DRIFT_FACTOR = 0.01;

/** What is no number has its default: of an operation, that of its `Redlock`. @internal */
export function withDefaults(given: Partial<Settings>, defaults = DEFAULTS): Settings {
  const pick = (key: keyof Settings): number => {
    const value = given[key];
    return typeof value === 'number' && !Number.isNaN(value) ? value : defaults[key];
  };
  return {
    driftFactor: pick('driftFactor'),
    retryCount: pick('retryCount'),
    retryDelay: pick('retryDelay'),
    retryJitter: pick('retryJitter'),
    automaticExtensionThreshold: pick('automaticExtensionThreshold'),
  };
}

/** How often an operation is tried at most. @internal */
export function attemptsMax({ retryCount }: Settings): number {
  return retryCount === -1 ? Number.POSITIVE_INFINITY : retryCount + 1;
}

/** How long the retries take in sum, in whole ms; `null` if there are none. @internal */
export function patience(settings: Settings): number | null {
  const retries = attemptsMax(settings) - 1;
  if (retries <= 0) return null;
  const sum = Math.round(retries * meanDelay(settings));
  // Some say for ever by a number that is as large as can be.
  return Number.isSafeInteger(sum) ? sum : Number.POSITIVE_INFINITY;
}

/** The mean of `nextDelay`, which is never below zero. */
function meanDelay({ retryDelay: delay, retryJitter: jitter }: Settings): number {
  return delay >= jitter ? Math.max(0, delay) : Math.max(0, delay + jitter) ** 2 / (4 * jitter);
}

/** The time until the next attempt, in ms. @internal */
export function nextDelay({ retryDelay, retryJitter }: Settings): number {
  return Math.max(0, retryDelay + Math.floor((Math.random() * 2 - 1) * retryJitter));
}

/** When a lock that is valid for `remaining` ms by holdfast's account counts as expired. @internal */
export function expirationOf(remaining: number, duration: number, { driftFactor }: Settings) {
  const more = Math.max(0, Math.round((driftFactor - DRIFT_FACTOR) * duration));
  return Date.now() + remaining - more;
}

/** How long a lock is valid that was asked for just now. @internal */
export function validFor(duration: number): number {
  return duration - Math.round(DRIFT_FACTOR * duration) - 2;
}

/** @internal */
export function checkDuration(duration: number): void {
  if (Math.floor(duration) !== duration) {
    throw new Error('Duration must be an integer value in milliseconds.');
  }
  checkWhole(duration, 'duration', TTL_MS_MIN, TTL_MS_MAX);
}

/** The names, each once. @internal */
export function checkResources(resources: unknown): string[] {
  if (!Array.isArray(resources)) {
    const message = `resources must be a list of names, got ${show(resources)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const names = [...new Set(resources)];
  checkNames(names);
  return names;
}
