/** The locks of owners that callers name: they are found by the owner, in any process, and ended by the token of one hold. */

import { show } from '../base/checks.js';
import { HeldLock } from '../lock/held-lock.js';
import type { AcquireRequest } from '../lock/request.js';
import type { Taker } from './taker.js';

/** Takes over the lock that an owner has now. @internal */
export async function adoptOfOwner(
  taker: Taker,
  name: string,
  owner: string,
  request: AcquireRequest,
): Promise<HeldLock> {
  const adopt = (token: string) => taker.adopt(name, token, request);
  const lock = await withToken(taker, name, owner, adopt);
  if (lock === undefined) throw taker.notHeld(name, `the owner ${show(owner)}`);
  return lock;
}

/** Releases the hold that an owner has now, never one that it gets later. Answers whether it had one. @internal */
export async function releaseOfOwner(taker: Taker, name: string, owner: string): Promise<boolean> {
  for (const handle of taker.context.channel.handles()) {
    const isMeant = handle instanceof HeldLock && handle.name === name && handle.owner === owner;
    if (isMeant && (await handle.release())) return true;
  }
  const force = async (token: string) => (await taker.force(name, false, [token])) || undefined;
  return (await withToken(taker, name, owner, force)) ?? false;
}

/**
 * Calls `act` with the token under which an owner has a lock, and again if the owner has it under another by then. Answers
 * undefined once the owner does not have the lock.
 */
async function withToken<T>(
  taker: Taker,
  name: string,
  owner: string,
  act: (token: string) => Promise<T | undefined>,
): Promise<T | undefined> {
  let before: string | undefined;
  for (;;) {
    const handles = await taker.holdersOf(name);
    const token = handles.find((handle) => handle.owner === owner)?.token;
    // The owner may get it anew between two steps, but never under the same token.
    if (token === undefined || token === before) return undefined;
    const result = await act(token);
    if (result !== undefined) return result;
    before = token;
  }
}
