/** The planned times of a cron pattern, as slots. */

import type { Cron } from 'croner';
import { checkText, show } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { TTL_MS_MAX } from '../lock/times.js';

/** How early a call may be for a planned time, by the clock of the server: a part of the time since the one before. */
const EARLY_PART = 4;
const EARLY_MS_MAX = 60_000;

/** A planned time, and how long it is until the next, both in ms. @internal */
interface PlannedTime {
  readonly time: number;
  readonly gap: number;
}

/** The times that a cron pattern plans in a time zone. @internal */
export class CronPlan {
  readonly #cron: Cron;

  private constructor(cron: Cron) {
    this.#cron = cron;
  }

  /** Reads a pattern of five fields, or six with seconds, or a name such as `@daily`. */
  static of(pattern: unknown, timeZone: unknown): CronPlan {
    checkText(pattern, 'cron');
    checkText(timeZone, 'timeZone');
    checkTimeZone(timeZone);
    // A date alone would be a plan for one run.
    if (!/^\s*@|\S\s+\S/.test(pattern)) throw wrongPattern(pattern, 'it has no five or six fields');
    // Most processes that run jobs once have no pattern: this takes as long as all of this package to load.
    const croner = require('croner') as typeof import('croner');
    let cron: Cron;
    try {
      cron = new croner.Cron(pattern, { timezone: timeZone, mode: '5-or-6-parts' });
    } catch (error) {
      throw wrongPattern(pattern, (error as Error).message);
    }
    if (cron.nextRun() !== null) return new CronPlan(cron);
    throw wrongPattern(pattern, 'it plans no time, since no month has such a day');
  }

  /**
   * The planned time of a call at `now`: the last one before, however late the call is, or the next if that is so near
   * that the caller's clock may be ahead of the server's.
   */
  at(now: number): PlannedTime {
    const next = this.#after(now);
    const last = this.#before(now + 1);
    const early = last === undefined ? EARLY_MS_MAX : (next - last) / EARLY_PART;
    const isNext = last === undefined || next - now <= Math.min(early, EARLY_MS_MAX);
    return isNext
      ? { time: next, gap: this.#after(next) - next }
      : { time: last, gap: next - last };
  }

  /** The planned times before `time`, the latest first, down to `since`. */
  *before(time: number, since: number): Generator<number, void, undefined> {
    for (let at = this.#before(time); at !== undefined && at >= since; at = this.#before(at)) {
      yield at;
    }
  }

  /** The first planned time later than `time`. After the last year that a calendar has it is later than any lease lasts. */
  #after(time: number): number {
    return this.#cron.nextRun(new Date(time))?.getTime() ?? TTL_MS_MAX;
  }

  /** The last planned time earlier than `time`. */
  #before(time: number): number | undefined {
    return this.#cron.previousRuns(1, new Date(time))[0]?.getTime();
  }
}

function checkTimeZone(timeZone: string): void {
  try {
    new Intl.DateTimeFormat('en', { timeZone });
  } catch {
    const message = `timeZone must be a name such as 'Europe/Berlin' or 'UTC', got ${show(timeZone)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

function wrongPattern(pattern: string, why: string): Error {
  const message = `cron must be a pattern such as '0 9 * * 1-5', got ${show(pattern)}: ${why}`;
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}
