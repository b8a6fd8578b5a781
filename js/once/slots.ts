/** What a slot is: a name, a multiple of a length of time, or the planned time of a pattern. */

import { checkText, checkWhole } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { TTL_MS_MIN } from '../lock/options.js';
import { CronPlan } from './cron.js';

/** A slot, and for how long it stays done, in ms. @internal */
export interface Slot {
  readonly name: string;
  readonly keep: number;
  /** The slots before this one that may still be known as done, the latest first. */
  readonly earlier?: () => Iterable<string>;
}

/** The slots of a job. @internal */
export interface Slots {
  /** One of their names. Those that a time chooses have all the same length. */
  readonly sample: string;
  /** The slot, if its caller has named it. */
  readonly named?: Slot;
  /** The slot of a call at `time`, in ms since 1970. */
  at(time: number): Slot;
}

/** How the caller says what a slot is. */
interface Choice {
  readonly every: unknown;
  readonly cron: unknown;
  readonly timeZone: unknown;
  readonly slot: unknown;
}

const DAY_MS = 86_400_000;
const KEEP_MS_MAX = 366 * DAY_MS;
const KEEP_MS_LEAST = 60_000;
/** For how many planned times a slot stays done: so many that are missed can be told. */
const KEPT_TIMES = 16;

/** @internal */
export function checkSlots({ every, cron, timeZone, slot }: Choice, keep: unknown): Slots {
  const given = [every, cron, slot].filter((each) => each !== undefined);
  if (given.length !== 1) {
    const message =
      'runOnce needs one of every, the length of a slot, cron, its planned times, and slot, its name';
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  if (timeZone !== undefined && cron === undefined) {
    throw argumentError('ERR_INVALID_ARG_VALUE', 'timeZone is an option for cron');
  }
  if (slot !== undefined) return namedSlot(slot, keep);
  return cron === undefined ? evenSlots(every, keep) : plannedSlots(cron, timeZone, keep);
}

function namedSlot(slot: unknown, keep: unknown): Slots {
  const name = slot instanceof Date ? nameOf(slot) : slot;
  checkText(name, 'slot');
  if (name === '') throw argumentError('ERR_INVALID_ARG_VALUE', 'slot must not be empty');
  const named = { name, keep: checkKeep(keep, TTL_MS_MIN) ?? DAY_MS };
  return { sample: name, named, at: () => named };
}

function nameOf(planned: Date): string {
  if (!Number.isNaN(planned.getTime())) return planned.toISOString();
  throw argumentError('ERR_INVALID_ARG_VALUE', 'slot must be a valid Date, got an invalid one');
}

/** Multiples of a length; a call belongs to the nearest, so ticks at a full minute need no equal clocks. */
function evenSlots(every: unknown, keep: unknown): Slots {
  checkWhole(every, 'every', TTL_MS_MIN, KEEP_MS_MAX);
  const ms = every as number;
  const kept = checkKeep(keep, ms) ?? usualKeep(2 * ms);
  return {
    sample: nameAt(0),
    at: (time) => ({ name: nameAt(Math.round(time / ms) * ms), keep: kept }),
  };
}

function plannedSlots(cron: unknown, timeZone: unknown, keep: unknown): Slots {
  const plan = CronPlan.of(cron, timeZone ?? 'UTC');
  const given = checkKeep(keep, TTL_MS_MIN);
  return {
    sample: nameAt(0),
    at: (now) => {
      const { time, gap } = plan.at(now);
      const kept = Math.min(KEEP_MS_MAX, Math.max(given ?? usualKeep(KEPT_TIMES * gap), gap));
      const earlier = () => names(plan.before(time, now - kept));
      return { name: nameAt(time), keep: kept, earlier };
    },
  };
}

function* names(times: Iterable<number>): Generator<string, void, undefined> {
  for (const time of times) yield nameAt(time);
}

function checkKeep(keep: unknown, least: number): number | undefined {
  if (keep === undefined) return undefined;
  checkWhole(keep, 'keep', least, KEEP_MS_MAX);
  return keep as number;
}

function usualKeep(ms: number): number {
  return Math.min(KEEP_MS_MAX, Math.max(ms, KEEP_MS_LEAST));
}

function nameAt(time: number): string {
  return new Date(time).toISOString();
}
