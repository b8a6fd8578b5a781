/** Takes several locks for one call: all of them or none. */

import { Buffer } from 'node:buffer';
import { LockLostError } from '../base/errors.js';
import { tracedAcquire } from '../lock/diagnostics.js';
import { HeldLock } from '../lock/held-lock.js';
import type { SharedHandle } from '../lock/lock.js';
import { all, LockSet } from '../lock/lock-set.js';
import { setOrigin } from '../lock/origins.js';
import { toError } from '../lock/outcome.js';
import type { AcquireRequest } from '../lock/request.js';
import {
  acquireAllOperation,
  OutcomeCode,
  readGrants,
  releaseOperation,
  SHARE_EXCLUSIVE,
  WAIT_NEVER,
  WAIT_STEAL,
} from '../native/records.js';
import type { NestedCall } from '../request/nested-call.js';
import type { Taker } from './taker.js';

/**
 * Takes all of `given`, or none; answers `null` if one is held and `request` says not to wait. `nested`: the call is made
 * under a request that holds some of them.
 *
 * @internal
 */
export function takeAll(
  taker: Taker,
  given: readonly string[],
  request: AcquireRequest,
  nested?: NestedCall,
): Promise<LockSet | null> {
  // A copy: the caller may change its array meanwhile.
  const names = [...given];
  const take = () => takeEach(taker, names, request, nested);
  // A call that shares all its locks with a request around it acquires none.
  const sharesAll = request.reentrant && names.every((name) => nested?.shareable(name));
  if (sharesAll) return take();
  return tracedAcquire({ name: names.join(', '), errors: taker.errors }, request.signal, take);
}

/** Takes all of `names`, by one request if they are free. */
async function takeEach(
  taker: Taker,
  names: readonly string[],
  request: AcquireRequest,
  nested: NestedCall | undefined,
): Promise<LockSet | null> {
  const { share, wait } = request;
  const begun = taker.now();
  const waited = () => taker.now() - begun;
  if (nested === undefined && share === SHARE_EXCLUSIVE && wait !== WAIT_STEAL) {
    const locks = await takeTogether(taker, names, waited, request);
    if (locks !== undefined) return locks;
  }
  return takeOneByOne(names, waited, wait, (name, left) => {
    const each = { ...request, wait: left, set: { waited, size: names.length } };
    return taker.takeOrShare(name, each, nested, () => taker.takeUntraced(name, each));
  });
}

/**
 * Takes all of `names` by one call, if all are free. Answers `null` if they are not and `request` says not to
 * wait, `undefined` if they are to be taken one by one. `waited`: for how long the caller has waited.
 */
async function takeTogether(
  taker: Taker,
  names: readonly string[],
  waited: () => number,
  request: AcquireRequest,
): Promise<LockSet | null | undefined> {
  const { errors, channel } = taker.context;
  const { wait, label, signal, leaveToExpire, awaitRelease, origin } = request;
  const outcome = await taker.untilAborted(acquireAllOperation(names, request), signal);
  const { code } = outcome;
  if (code !== OutcomeCode.AcquiredAll) {
    signal?.throwIfAborted();
    // A caller that is ready to wait takes them one by one, and so also waits out an error of the server. One whose wait is
    // over would hear of the same error about the first lock.
    if (code === OutcomeCode.OneByOne || waited() < wait) return undefined;
    if (code === OutcomeCode.Held) return wait === WAIT_NEVER ? null : undefined;
    throw toError(outcome, errors, 'acquire', names.join('", "'));
  }
  const { leases, fences } = readGrants(outcome, names.length);
  if (fences === undefined) {
    await Promise.all(leases.map((lease) => channel.submit(releaseOperation(lease, false))));
    const failed = { ...outcome, code: OutcomeCode.Internal };
    throw toError(failed, errors, 'acquire', names.join('", "'));
  }
  const left = { leaveToExpire, awaitRelease };
  const terms = { label, isToken: false, mode: 'exclusive', terms: '', ...left } as const;
  const locks = names.map((name, i) => {
    const [lease, fence] = [leases[i] as number, fences[i] as number];
    const lock = HeldLock.begin(taker.context, { name, lease, fence, ...terms });
    setOrigin(lock, origin);
    return lock;
  });
  const set = new LockSet(locks);
  if (signal?.aborted) {
    await set.release();
    throw signal.reason;
  }
  return set;
}

/** Takes one lock within `wait` ms, or answers `null` if it is held and `wait` is `WAIT_NEVER`. */
type Take = (name: string, wait: number) => Promise<SharedHandle | null>;

/**
 * Takes all of `names`, one by one in the order of their bytes, so that two callers never wait for each
 * other; within `wait` ms in sum, of which `waited()` are over. If one fails, those that were taken are released.
 */
async function takeOneByOne(
  names: readonly string[],
  waited: () => number,
  wait: number,
  take: Take,
): Promise<LockSet | null> {
  const taken = new Map<string, SharedHandle>();
  const releaseTaken = () => all([...taken.values()], (lock) => lock.release()).catch(() => {});
  try {
    for (const name of inOrder(names)) {
      const left = wait > 0 ? Math.max(0, Math.ceil(wait - waited())) : wait;
      const lock = await take(name, left);
      if (lock === null) {
        await releaseTaken();
        return null;
      }
      taken.set(name, lock);
    }
    for (const lock of taken.values()) assertStillHeld(lock);
  } catch (error) {
    await releaseTaken();
    throw error;
  }
  return new LockSet(names.map((name) => taken.get(name) as SharedHandle));
}

/** Without renewal the first leases may have ended while the caller waited for the last lock. */
function assertStillHeld(lock: SharedHandle): void {
  try {
    lock.assertHeld();
  } catch (error) {
    const { message, reason } = error as LockLostError;
    const text = `${message}; this happened while the caller waited for other locks of its set: choose a longer ttl, or do not pass renew: false`;
    throw new LockLostError(text, lock.name, reason);
  }
}

/** Sorts names by their UTF-8 bytes: the order of all processes. All keys begin with the same prefix. */
function inOrder(names: readonly string[]): string[] {
  const named = names.map((name) => ({ name, bytes: Buffer.from(name) }));
  return named.sort((a, b) => Buffer.compare(a.bytes, b.bytes)).map(({ name }) => name);
}
