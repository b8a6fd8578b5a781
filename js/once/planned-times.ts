/** The slots of a job: a name, a multiple of a length of time, or the planned time of a pattern. */

import { checkText, checkWhole } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { TTL_MS_MIN } from '../lock/times.js';
import { CronPlan } from './cron.js';

/** A slot, and for how long it stays done, in ms. @internal */
export interface Slot {
  readonly name: string;
  readonly keep: number;
  /** When it was planned, if it was. All planned times of a job have one mark, which tells the last that is done. */
  readonly planned?: PlannedSlot;
}

/** @internal */
interface PlannedSlot {
  /** In ms since 1970. */
  readonly time: number;
  /** The names of the slots between `last`, the time of an earlier one, and this, the earliest first: the last 99. */
  since(last: number): string[];
}

/** The slots of a job. @internal */
export interface Slots {
  /** The second part of the name of their mark, or one that is as long. */
  readonly mark: string;
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

/** The slot in the name of the mark of all planned times: none that is named is empty. @internal */
export const ALL_PLANNED = '';
const DAY_MS = 86_400_000;
const KEEP_MS_MAX = 366 * DAY_MS;
const KEEP_MS_LEAST = 60_000;
/** For how many planned times a slot stays done: so many that are missed can be told. */
const KEPT_TIMES = 16;
/** A body is told of no more slots that were missed. */
const MISSED_MAX = 99;

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
  return { mark: name, named, at: () => named };
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
    mark: nameAt(0),
    at: (time) => ({ name: nameAt(Math.round(time / ms) * ms), keep: kept }),
  };
}

function plannedSlots(cron: unknown, timeZone: unknown, keep: unknown): Slots {
  const plan = CronPlan.of(cron, timeZone ?? 'UTC');
  const given = checkKeep(keep, TTL_MS_MIN);
  return {
    mark: ALL_PLANNED,
    at: (now) => {
      const { time, gap } = plan.at(now);
      // However rare the planned times are, one is done until the next.
      const kept = Math.max(given ?? usualKeep(KEPT_TIMES * gap), gap);
      const since = (last: number) => namesOf(plan.before(time, last + 1));
      return { name: nameAt(time), keep: kept, planned: { time, since } };
    },
  };
}

function namesOf(times: Iterable<number>): string[] {
  const names: string[] = [];
  for (const time of times) {
    if (names.push(nameAt(time)) === MISSED_MAX) break;
  }
  return names.reverse();
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
