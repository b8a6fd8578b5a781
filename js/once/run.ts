/** Runs a body once per slot: a lock for the body, and a second one, left to expire, that marks the slot. */

import { onAbort } from '../base/abort.js';
import {
  argumentError,
  LockConnectionError,
  LockTimeoutError,
  LockUnmarkedError,
} from '../base/errors.js';
import { BEFORE_STATE, DONE, slotStateOf } from '../base/tokens.js';
import { HeldLock } from '../lock/held-lock.js';
import type { Lock, LockJson } from '../lock/lock.js';
import { type AcquireRequest, TTL_MS_MIN } from '../lock/options.js';
import { SHARE_EXCLUSIVE, WAIT_NEVER } from '../native/records.js';
import { runUnder } from '../request/request.js';
import type { OnceRequest, OnceResult } from './options.js';
import type { Slot, Slots } from './slots.js';

/** The body of a run. @internal */
export type OnceBody<T> = (lock: Lock, slot: string, missed: readonly string[]) => T;

/** What a run needs of its manager. @internal */
export interface OnceManager {
  readonly server: string;
  /** A monotonic clock, in ms. */
  now(): number;
  /** What the clock of a lock's server shows, in ms since 1970; undefined if it is unknown. */
  serverTime(name: string): number | undefined;
  /** Takes a lock, or answers `null` if it is held and the request says not to wait. */
  take(name: string, request: AcquireRequest): Promise<HeldLock | null>;
  /** Takes a lock that is free, or answers the value of the one that is held. */
  takeOrRead(name: string, request: AcquireRequest): Promise<HeldLock | string>;
  /** Whether anybody holds a lock. */
  isHeld(name: string): Promise<boolean>;
  /** Gives the lock `owner` another value, and a lease of `ttl` ms that is not renewed. */
  replace(
    owner: Pick<LockJson, 'name' | 'token'>,
    value: string,
    terms: { readonly ttl: number; readonly leaveToExpire: boolean },
  ): Promise<HeldLock>;
}

/** How often a caller that waits for the end of a body without its lock looks whether the slot is done. */
const MARKER_POLL_MS = 1_000;
/** Every command about the marker carries its value, and Redis keeps it for as long as the slot is done. */
const RESULT_BYTES_MAX = 65_536;
/** How many slots before the present one are looked at, with a command each. */
const MISSED_MAX = 100;

/** The name of the lock that marks a slot. @internal */
export function markerOf(key: string, slot: string): string {
  return `${key}@${slot}`;
}

/** See `LockManager.runOnce`. `owner` stands for the manager. @internal */
export async function runOnce<T>(
  owner: object,
  manager: OnceManager,
  key: string,
  once: OnceRequest,
  body: OnceBody<T>,
): Promise<OnceResult<Awaited<T>>> {
  const called = manager.now();
  const lock = await takeInTime(manager, key, once.request);
  try {
    // The server has just answered, so its clock is known; the slot is that of the call, however long it waited.
    const waited = manager.now() - called;
    const slot = slotOf(manager, key, once.slots, waited);
    const refused = { ran: false, slot: slot.name } as const;
    if (lock === null) return { ...refused, reason: 'running' };
    const deadline = called + Math.max(0, once.request.wait);
    const taken = await takeMarker(manager, markerOf(key, slot.name), { once, slot, deadline });
    if (!(taken instanceof HeldLock)) {
      await lock.release();
      if (taken === null) return { ...refused, reason: 'running' };
      return { ...refused, reason: 'done', ...(taken as { value?: Awaited<T> }) };
    }
    const marker = new Marker(manager, taken, slot.keep);
    const run = () => runMarked(manager, { lock, slot, marker, once }, body);
    return {
      ran: true,
      slot: slot.name,
      value: (await runUnder(owner, [lock], run)) as Awaited<T>,
    };
  } catch (error) {
    await lock?.release().catch(() => {});
    throw error;
  }
}

/** A slot that runs. */
interface SlotRun {
  readonly lock: Lock;
  readonly slot: Slot;
  readonly marker: Marker;
  readonly once: OnceRequest;
}

/** Runs the body, and marks the slot before or after it. A marker that is not left is free before the lock is. */
async function runMarked<T>(
  manager: OnceManager,
  run: SlotRun,
  body: OnceBody<T>,
): Promise<Awaited<T>> {
  const { lock, slot, marker, once } = run;
  // Without its lock the body marks nothing, so the slot is free for the next caller, who need not wait for its end.
  const forget = once.retry ? onAbort(lock.signal, () => marker.release()) : undefined;
  try {
    const missed = await missedBefore(manager, lock.name, slot);
    if (!once.retry) await marker.markBefore();
    const value = await body(lock, slot.name, missed);
    const json = once.keepResult ? jsonOf(lock.name, value) : undefined;
    // The loss of the lock is reported when it is released.
    if (lock.held && (once.retry || json !== undefined)) {
      await marker.markAfter(json).catch((cause) => {
        throw unmarked(run, value, cause);
      });
    }
    return value;
  } finally {
    forget?.();
    await marker.release();
  }
}

/**
 * The slots before this one that are not done, the earliest first: those after the last that is. If none of them is known
 * as done, the job may be new, so none counts as missed.
 */
async function missedBefore(
  manager: OnceManager,
  key: string,
  { earlier = () => [] }: Slot,
): Promise<string[]> {
  const missed: string[] = [];
  for (const slot of earlier()) {
    if (await manager.isHeld(markerOf(key, slot))) return missed.reverse();
    if (missed.push(slot) === MISSED_MAX) break;
  }
  return [];
}

/** The lock that marks a slot. Its value tells whether a body runs, or the slot is done: a token has no space. */
class Marker {
  readonly #manager: OnceManager;
  readonly #keep: number;
  readonly #token: string;
  #held: HeldLock;
  #isLeft = false;

  constructor(manager: OnceManager, held: HeldLock, keep: number) {
    this.#manager = manager;
    this.#keep = keep;
    this.#token = held.token;
    this.#held = held;
  }

  /** Marks the slot before its body. If that fails no body runs, so the mark is given back. */
  async markBefore(): Promise<void> {
    await this.#write(DONE, false);
    await this.#held.expireIn(this.#keep);
    this.#isLeft = true;
  }

  /** Marks the slot after its body. The server compares the value until then, so a body that was overtaken fails. */
  async markAfter(json: string | undefined): Promise<void> {
    await this.#write(json ?? DONE, true);
    this.#isLeft = true;
    // The server has it all: this only forgets the lease here.
    await this.#held.expireIn(this.#keep).catch(() => {});
  }

  async #write(state: string, leaveToExpire: boolean): Promise<void> {
    const owner = { name: this.#held.name, token: this.#isLeft ? this.#value(DONE) : this.#token };
    const terms = { ttl: this.#keep, leaveToExpire };
    this.#held = await this.#manager.replace(owner, this.#value(state), terms);
  }

  #value(state: string): string {
    return `${this.#token}${BEFORE_STATE}${state}`;
  }

  /** Frees the slot unless it is marked. */
  async release(): Promise<void> {
    if (!this.#isLeft) await this.#held.release().catch(() => {});
  }
}

/** What a marker says of a slot that is done: its result, if there is one. */
type Mark = { readonly value?: unknown };

/** Reads the value of a marker that is held; undefined if its body runs. */
function readMark(marker: string): Mark | undefined {
  const state = slotStateOf(marker);
  if (state === undefined) return undefined;
  return state === DONE ? {} : { value: JSON.parse(state) };
}

/** The error for a body that has ended well, and whose slot or result is not known to be kept. */
function unmarked({ lock, slot, once }: SlotRun, value: unknown, cause: Error): Error {
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

/**
 * Takes a marker, or answers what it says of a slot that is done, or `null` if a body runs: one that has lost the lock,
 * which is held here now. It frees the marker when it knows that, or its lease ends, so a caller with patience waits.
 */
async function takeMarker(
  manager: OnceManager,
  name: string,
  { once, slot, deadline }: { once: OnceRequest; slot: Slot; deadline: number },
): Promise<HeldLock | Mark | null> {
  const request = requestOfMarker(once, slot.keep);
  for (;;) {
    const found = await manager.takeOrRead(name, request);
    if (typeof found !== 'string') return found;
    const mark = readMark(found);
    if (mark !== undefined) return once.keepResult ? mark : {};
    const wait = Math.ceil(Math.min(deadline - manager.now(), MARKER_POLL_MS));
    if (wait <= 0) return null;
    const taken = await takeInTime(manager, name, { ...request, wait });
    if (taken !== null) return taken;
  }
}

/** Takes the lock of the body, or answers `null` if another client holds it for longer than the caller waits. */
async function takeInTime(
  manager: OnceManager,
  key: string,
  request: AcquireRequest,
): Promise<HeldLock | null> {
  try {
    return await manager.take(key, request);
  } catch (error) {
    if (error instanceof LockTimeoutError) return null;
    throw error;
  }
}

/**
 * The marker's lease is half as long as that of the lock. Both are renewed at a third, so after a crash the marker
 * ends first: who gets the lock then finds the marker only if the slot is marked.
 */
function requestOfMarker({ request }: OnceRequest, keep: number): AcquireRequest {
  const ttl = Math.max(TTL_MS_MIN, Math.min(keep, Math.floor(request.ttl / 2)));
  const { label, stallTimeout, origin, signal } = request;
  return {
    ttl,
    label,
    stallTimeout,
    origin,
    signal,
    renew: true,
    maxHold: Number.POSITIVE_INFINITY,
    wait: WAIT_NEVER,
    share: SHARE_EXCLUSIVE,
    permits: 1,
    reentrant: false,
    leaveToExpire: false,
    linger: 0,
    awaitRelease: true,
  };
}

function slotOf(manager: OnceManager, key: string, slots: Slots, waited: number): Slot {
  if (slots.named !== undefined) return slots.named;
  const time = manager.serverTime(key);
  if (time !== undefined) return slots.at(time - waited);
  const message = `cannot choose the slot of "${key}" by the clock of ${manager.server}: the connection to it was lost`;
  throw new LockConnectionError(message, key);
}
