/** Locks that belong to an owner whom the caller names: any process that names it gets the lock again. */

import { setTimeout } from 'node:timers/promises';
import { WAIT_NEVER, WAIT_STEAL } from '../native/records.js';
import type { HeldLock } from './held-lock.js';
import type { AcquireRequest } from './options.js';

/** How often a caller that waits looks whether its owner has got the lock elsewhere, in ms. */
const LOOK_MS = 1_000;
/**
 * The longest lease between the grant and the owner's name, in ms: if the process dies there, the lock must not last as long
 * as one of the owner, who does not have it.
 */
const UNNAMED_MS = 10_000;

/** The calls of the manager that `takeOwned` needs, for one lock. @internal */
export interface OwnedCalls {
  /** Takes the lock under a token of the manager, or answers `null` if it is held and the request does not wait. */
  take(request: AcquireRequest): Promise<HeldLock | null>;
  /** Gives the lock that this token has to the owner; `null` if it does not have the lock. Without one: the owner's own. */
  name(token?: string): Promise<HeldLock | null>;
  /** The error for a lock that was lost before the owner had it. */
  lost(): Error;
  /** The clock of the manager, in ms. */
  now(): number;
}

/**
 * Takes a lock for its owner, who may have it already, or answers `null` if it is held and the request does not wait. The
 * owner's token can be in no queue, since others may have it: so the lock is taken like any other, and then adopted.
 *
 * @internal
 */
export async function takeOwned(
  request: AcquireRequest,
  calls: OwnedCalls,
): Promise<HeldLock | null> {
  const { wait } = request;
  const unnamed = {
    ...request,
    ttl: Math.min(request.ttl, UNNAMED_MS),
    renew: true,
    leaveToExpire: false,
    linger: 0,
  };
  if (wait === WAIT_STEAL) return give(calls, await calls.take(unnamed));
  const begun = calls.now();
  const free = await calls.take({ ...unnamed, wait: WAIT_NEVER });
  if (free !== null) return give(calls, free);
  const own = await calls.name();
  if (own !== null || wait === WAIT_NEVER) return own;
  const left = Math.max(0, Math.ceil(wait - (calls.now() - begun)));
  return waitOrJoin({ ...unnamed, wait: left }, calls);
}

/** Waits for the lock, or until the owner has got it elsewhere. */
async function waitOrJoin(request: AcquireRequest, calls: OwnedCalls): Promise<HeldLock | null> {
  const end = new AbortController();
  let own: HeldLock | null = null;
  const look = async () => {
    while (own === null && !end.signal.aborted) {
      await setTimeout(LOOK_MS, undefined, { ref: false, signal: end.signal });
      own = await calls.name();
    }
    end.abort();
  };
  // The wait itself tells of a server that cannot be reached.
  const looking = look().catch(() => {});
  const signals = request.signal === undefined ? [] : [request.signal];
  const signal = AbortSignal.any([...signals, end.signal]);
  try {
    const taken = await calls.take({ ...request, signal });
    await stop();
    // It was free meanwhile, so the owner has lost what it had.
    (own as HeldLock | null)?.disown();
    return await give(calls, taken);
  } catch (error) {
    await stop();
    if (own === null) throw error;
    return own;
  }

  async function stop(): Promise<void> {
    end.abort();
    await looking;
  }
}

/** Gives the owner a lock that was taken for it. */
async function give(calls: OwnedCalls, taken: HeldLock | null): Promise<HeldLock | null> {
  if (taken === null) return null;
  try {
    const owned = await calls.name(taken.token);
    if (owned === null) throw calls.lost();
    return owned;
  } catch (error) {
    await taken.release().catch(() => {});
    throw error;
  }
}
