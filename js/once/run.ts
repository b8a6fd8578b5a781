/** Runs a body once per slot: under a lock, without which no slot is marked. */

import type { Taker } from '../acquire/taker.js';
import {
  argumentError,
  LockConnectionError,
  type LockLostError,
  LockTimeoutError,
  LockUnmarkedError,
} from '../base/errors.js';
import type { HeldLock } from '../lock/held-lock.js';
import type { Lock } from '../lock/lock.js';
import type { AcquireRequest } from '../lock/request.js';
import type { NestedCall } from '../request/nested-call.js';
import { runUnder } from '../request/request.js';
import { type Finding, Mark, type Run } from './mark.js';
import type { OnceRequest, OnceResult } from './options.js';
import type { Slot, Slots } from './planned-times.js';

/** The body of a run. @internal */
type OnceBody<T> = (lock: Lock, slot: string, missed: readonly string[]) => T;

/** Every command about the mark carries its value, and Redis keeps it for as long as the slot is done. */
const RESULT_BYTES_MAX = 65_536;

/** See `LockManager.runOnce`. `nested`: the call is made under a request that holds the lock. @internal */
export async function runOnce<T>(
  taker: Taker,
  key: string,
  once: OnceRequest,
  body: OnceBody<T>,
  nested: NestedCall | undefined,
): Promise<OnceResult<Awaited<T>>> {
  const called = taker.now();
  const lock = await takeInTime(taker, key, once.request, nested);
  try {
    // The server has just answered, so its clock is known; the slot is that of the call, however long it waited.
    const waited = taker.now() - called;
    const slot = slotOf(taker, key, once.slots, waited);
    const refused = { ran: false, slot: slot.name } as const;
    if (lock === null) return { ...refused, reason: 'running' };
    const run = { lock, slot, once };
    const mark = new Mark(taker, run);
    const found = await begin(mark, run, called + Math.max(0, once.request.wait));
    if (found.is === 'open') {
      const value = await runUnder(taker, [lock], () => runMarked(mark, run, found.missed, body));
      return { ran: true, slot: slot.name, value };
    }
    await lock.release();
    if (found.is === 'taken') return { ...refused, reason: 'running' };
    const { value } = found as { value?: Awaited<T> };
    return { ...refused, reason: 'done', ...(value === undefined ? {} : { value }) };
  } catch (error) {
    await lock?.release().catch(() => {});
    throw error;
  }
}

/** Finds what the mark says, and without `retry` marks a slot that is open, whose lock is held after that. */
async function begin(mark: Mark, { lock, once }: Run, deadline: number): Promise<Finding> {
  try {
    for (;;) {
      const found = await mark.find(deadline);
      if (found.is !== 'open') return found;
      lock.assertHeld();
      if (once.retry || (await mark.before())) return found;
    }
  } catch (error) {
    await mark.release();
    throw error;
  }
}

/** Runs the body, and with `retry` marks the slot. Nothing is awaited between the last look at the lock and the body. */
async function runMarked<T>(
  mark: Mark,
  run: Run,
  missed: readonly string[],
  body: OnceBody<T>,
): Promise<Awaited<T>> {
  const { lock, slot, once } = run;
  try {
    const value = await body(lock, slot.name, missed);
    const json = once.keepResult ? jsonOf(lock.name, value) : undefined;
    if (!once.retry && json === undefined) return value;
    const loss = lossOf(lock);
    // Any other loss is reported when the lock is released.
    if (loss?.reason === 'released') throw unmarked(run, value, loss);
    if (loss === undefined) {
      await mark.after(json).catch((cause) => {
        throw unmarked(run, value, cause);
      });
    }
    return value;
  } finally {
    await mark.release();
  }
}

/** Why a lock is not held; undefined if it is. */
function lossOf(lock: Lock): LockLostError | undefined {
  try {
    lock.assertHeld();
    return undefined;
  } catch (error) {
    return error as LockLostError;
  }
}

/** The error for a body that has ended well, and whose slot or result is not known to be kept. */
function unmarked({ lock, slot, once }: Run, value: unknown, cause: Error): Error {
  const outcome = once.retry
    ? 'but the slot may not be marked as done, so another caller may run it again'
    : 'and the slot is done, but its result may not be kept for other callers';
  const message = `the body of runOnce "${lock.name}" has ended well for the slot "${slot.name}", ${outcome}: ${cause.message}`;
  return new LockUnmarkedError(message, lock.name, { slot: slot.name, result: value, cause });
}

/** The JSON of a result; undefined for one that is `undefined`. */
function jsonOf(key: string, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  const subject = `the result of the body of "${key}", which keepResult keeps,`;
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${subject} must have JSON: ${error}`);
  }
  if (json === undefined) {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${subject} must have JSON, got a ${typeof value}`);
  }
  const bytes = Buffer.byteLength(json);
  if (bytes <= RESULT_BYTES_MAX) return json;
  const message = `${subject} must be at most ${RESULT_BYTES_MAX} bytes of JSON, got ${bytes}: keep it elsewhere, and return where`;
  throw argumentError('ERR_OUT_OF_RANGE', message);
}

/** Takes the lock of the body, or answers `null` if another client holds it for longer than the caller waits. */
async function takeInTime(
  taker: Taker,
  key: string,
  request: AcquireRequest,
  nested: NestedCall | undefined,
): Promise<HeldLock | null> {
  try {
    // It is not reentrant, so the lock is one of its own.
    return (await taker.take(key, request, nested)) as HeldLock | null;
  } catch (error) {
    if (error instanceof LockTimeoutError) return null;
    throw error;
  }
}

function slotOf(taker: Taker, key: string, slots: Slots, waited: number): Slot {
  if (slots.named !== undefined) return slots.named;
  const time = taker.serverTime(key);
  if (time !== undefined) return slots.at(time - waited);
  const message = `cannot choose the slot of "${key}" by the clock of ${taker.errors.server}: the connection to it was lost`;
  throw new LockConnectionError(message, key);
}
