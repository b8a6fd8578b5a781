/** Runs a body once per slot: a lock for the body, and a second one, left to expire, that marks the slot. */

import {
  argumentError,
  LockConnectionError,
  LockLostError,
  LockTimeoutError,
} from '../base/errors.js';
import type { HeldLock } from '../lock/held-lock.js';
import type { Lock } from '../lock/lock.js';
import { type AcquireRequest, TTL_MS_MIN } from '../lock/options.js';
import { SHARE_EXCLUSIVE, WAIT_NEVER } from '../native/records.js';
import { runUnder } from '../request/request.js';
import type { OnceRequest, OnceResult } from './options.js';

/** What a run needs of its manager. @internal */
export interface OnceManager {
  readonly server: string;
  /** What the clock of a lock's server shows, in ms since 1970; undefined if it is unknown. */
  serverTime(name: string): number | undefined;
  /** Takes a lock, or answers `null` if it is held and the request says not to wait. */
  take(name: string, request: AcquireRequest): Promise<HeldLock | null>;
  /** Takes a lock that is free, or answers the value of the one that is held. */
  takeOrRead(name: string, request: AcquireRequest): Promise<HeldLock | string>;
  /** Gives a lock another value, and a lease of `ttl` ms that is not renewed. */
  replace(lock: HeldLock, value: string, ttl: number): Promise<HeldLock>;
}

/** Between the token of a marker and the result of its slot. No token has a space. */
const BEFORE_RESULT = ' ';
/** Every command about the marker carries its value, and Redis keeps it for as long as the slot is done. */
const RESULT_BYTES_MAX = 65_536;

/** The name of the lock that marks a slot. @internal */
export function markerOf(key: string, slot: string): string {
  return `${key}@${slot}`;
}

/** The name of one slot that a time chooses: the names of all of them have its length. @internal */
export const SAMPLE_SLOT = new Date(0).toISOString();

/** The slot at a time in ms: the nearest multiple of its length, so ticks at a full minute need no equal clocks. */
function slotAt(time: number, every: number): string {
  return new Date(Math.round(time / every) * every).toISOString();
}

/** See `LockManager.runOnce`. `owner` stands for the manager. @internal */
export async function runOnce<T>(
  owner: object,
  manager: OnceManager,
  key: string,
  once: OnceRequest,
  body: (lock: Lock, slot: string) => T,
): Promise<OnceResult<Awaited<T>>> {
  const called = performance.now();
  const lock = await takeInTime(manager, key, once.request);
  try {
    // The server has just answered, so its clock is known; the slot is that of the call, however long it waited.
    const waited = performance.now() - called;
    const slot = slotOf(manager, key, once.slot, waited);
    if (lock === null) return { ran: false, slot, reason: 'running' };
    const marker = await takeMarker(manager, markerOf(key, slot), once);
    if (marker === null || typeof marker === 'string') {
      await lock.release();
      return { ran: false, slot, reason: 'done', ...readResult<Awaited<T>>(marker ?? '') };
    }
    const slotRun = { manager, lock, marker, once };
    const run = () => runMarked(slotRun, () => body(lock, slot));
    return { ran: true, slot, value: (await runUnder(owner, [lock], run)) as Awaited<T> };
  } catch (error) {
    await lock?.release().catch(() => {});
    throw error;
  }
}

/** A slot that runs. */
interface SlotRun {
  readonly manager: OnceManager;
  readonly lock: Lock;
  readonly marker: HeldLock;
  readonly once: OnceRequest;
}

/** Runs the body, and marks the slot before or after it. A marker that is not left is free before the lock is. */
async function runMarked<T>(
  { manager, lock, marker, once }: SlotRun,
  body: () => T,
): Promise<Awaited<T>> {
  const { retry, keep, keepResult } = once;
  let isLeft = false;
  // The server compares the marker's token, so a body that was overtaken marks nothing.
  const mark = async (left: HeldLock) => {
    await left.expireIn(keep);
    isLeft = true;
  };
  const finish = async (value: unknown) => {
    const json = keepResult ? jsonOf(lock.name, value) : undefined;
    // The loss of the lock is reported when it is released.
    if (!lock.held) return;
    if (json !== undefined) {
      await mark(await manager.replace(marker, `${marker.token}${BEFORE_RESULT}${json}`, keep));
    } else if (retry) await mark(marker);
  };
  try {
    if (!retry) await mark(marker);
    const value = await body();
    await finish(value).catch((error) => rethrow(error, value));
    return value;
  } finally {
    if (!isLeft) await marker.release().catch(() => {});
  }
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

/** The result in the value of a marker, if there is one. */
function readResult<T>(marker: string): { value: T } | undefined {
  const at = marker.indexOf(BEFORE_RESULT);
  return at === -1 ? undefined : { value: JSON.parse(marker.slice(at + 1)) as T };
}

/** Adds the value of the body to the loss of its marker. */
function rethrow(error: unknown, value: unknown): never {
  if (!(error instanceof LockLostError)) throw error;
  throw new LockLostError(error.message, error.lock ?? '', error.reason, value);
}

/** Takes a marker. If it is held, answers its value if that may have a result, or else `null`. */
function takeMarker(
  manager: OnceManager,
  name: string,
  once: OnceRequest,
): Promise<HeldLock | string | null> {
  const request = requestOfMarker(once);
  return once.keepResult ? manager.takeOrRead(name, request) : manager.take(name, request);
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
function requestOfMarker({ request, keep }: OnceRequest): AcquireRequest {
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
    reentrant: false,
    leaveToExpire: false,
  };
}

function slotOf(manager: OnceManager, key: string, slot: string | number, waited: number): string {
  if (typeof slot === 'string') return slot;
  const time = manager.serverTime(key);
  if (time !== undefined) return slotAt(time - waited, slot);
  const message = `cannot choose the slot of "${key}" by the clock of ${manager.server}: the connection to it was lost`;
  throw new LockConnectionError(message, key);
}
