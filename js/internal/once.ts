/** Runs a body once per slot: a lock for the body, and a second one, left to expire, that marks the slot. */

import { LockConnectionError, LockLostError, LockTimeoutError } from '../api/errors.js';
import type { Lock } from '../api/lock.js';
import type { OnceResult } from '../api/once.js';
import { type AcquireRequest, TTL_MS_MIN } from '../api/options.js';
import { SHARE_EXCLUSIVE, WAIT_NEVER } from '../native/records.js';
import type { HeldLock } from './held-lock.js';
import { runUnder } from './request.js';

/** What a run needs of its manager. @internal */
export interface OnceManager {
  readonly server: string;
  /** What the clock of a lock's server shows, in ms since 1970; undefined if it is unknown. */
  serverTime(name: string): number | undefined;
  /** Takes a lock, or answers `null` if it is held and the request says not to wait. */
  take(name: string, request: AcquireRequest): Promise<HeldLock | null>;
}

/** The options of a run, checked. @internal */
export interface OnceRequest {
  readonly request: AcquireRequest;
  /** The name of the slot, or the length of the slots in ms. */
  readonly slot: string | number;
  readonly retry: boolean;
  readonly keep: number;
}

/** The name of the lock that marks a slot. @internal */
export function markerOf(key: string, slot: string): string {
  return `${key}@${slot}`;
}

/** As long as every name of a slot that is told from a time. @internal */
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
    const marker = await manager.take(markerOf(key, slot), requestOfMarker(once));
    if (marker === null) {
      await lock.release();
      return { ran: false, slot, reason: 'done' };
    }
    const run = () => runMarked(lock, marker, once, () => body(lock, slot));
    return { ran: true, slot, value: (await runUnder(owner, [lock], run)) as Awaited<T> };
  } catch (error) {
    await lock?.release().catch(() => {});
    throw error;
  }
}

/** Runs the body, and marks the slot before or after it. A marker that is not left is free before the lock is. */
async function runMarked<T>(
  lock: Lock,
  marker: HeldLock,
  { retry, keep }: OnceRequest,
  body: () => T,
): Promise<Awaited<T>> {
  let isLeft = false;
  // The server compares the marker's token, so a body that was overtaken marks nothing.
  const mark = async () => {
    await marker.leaveToExpire(keep);
    isLeft = true;
  };
  try {
    if (!retry) await mark();
    const value = await body();
    // The loss of the lock is reported when it is released.
    if (retry && lock.held) await mark().catch((error) => rethrow(error, value));
    return value;
  } finally {
    if (!isLeft) await marker.release().catch(() => {});
  }
}

/** Adds the value of the body to the loss of its marker. */
function rethrow(error: unknown, value: unknown): never {
  if (!(error instanceof LockLostError)) throw error;
  throw new LockLostError(error.message, error.lock ?? '', error.reason, value);
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
