/** Helpers of the behaviours. */

import type { AcquireOptions, LockMode } from 'holdfast';
import type { Lock, LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { awaitSubscription, type Place } from './place.js';

/** The promises of holdfast by name; each fails if it is broken. */
export type Behaviours = Readonly<Record<string, (place: Place) => Promise<void>>>;

/** A lease and a patience that no busy machine outlasts. */
export const LONG = { ttl: 60_000, wait: 60_000 } as const;

/** As many managers as are asked for; each stands for a process of its own. */
export function openSeveral<T extends readonly unknown[]>(
  place: Place,
  ...names: T
): Promise<{ [I in keyof T]: LockManager }> {
  const opened = names.map(() => place.open());
  return Promise.all(opened) as Promise<{ [I in keyof T]: LockManager }>;
}

/** A synchronous loop: no timer and no promise of this thread runs meanwhile. */
export function blockEventLoop(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Resolves with the reason of the loss. A held lock keeps no process alive; this does. */
export async function aborted(
  lock: Lock,
): Promise<{ code: string; reason: string; message: string }> {
  const { signal } = lock;
  await until(() => signal.aborted, `${lock.name} to be lost`);
  return signal.reason;
}

/** The longest lease. */
export const TTL_MS_MAX = 9_000_000_000_000_000;

/** Waits until a lease that is not renewed has ended here. It may last a moment longer there. */
export function runOut(lock: Lock): Promise<void> {
  return until(() => !lock.held, `the lease of ${lock.name} to end`);
}

/** Takes the lock once it is free, without waiting in the queue for it. */
export async function takeWhenFree(manager: LockManager, name: string): Promise<Lock> {
  let lock: Lock | null = null;
  await until(async () => {
    lock = await manager.tryAcquire(name);
    return lock !== null;
  }, `${name} to be free`);
  return lock as unknown as Lock;
}

/**
 * Starts to wait for a lock that is held, and goes on when the waiter is queued and messages reach it: without them it
 * may be overtaken.
 */
export async function enqueue(
  manager: LockManager,
  name: string,
  options: AcquireOptions = LONG,
): Promise<{ granted: Promise<Lock> }> {
  const granted = manager.acquire(name, options);
  // The test awaits it later, and gets its failure then.
  granted.catch(() => {});
  await queued(manager, name);
  // In an object, so that who awaits this function does not wait for the lock.
  return { granted };
}

/** Goes on when callers of `manager` that began to wait before are in the queue, and messages reach them. */
export async function queued(manager: LockManager, name: string): Promise<void> {
  // Requests of one manager to one server are answered in order: with this one that before it is, too. The tag keeps
  // it on the server of the lock.
  await (await manager.tryAcquire(`beside {lock:${name}}`))?.release();
  await awaitSubscription.get(manager)?.(name);
}

/** Whether each lock has a counter of its own, as on a quorum. */
export function hasCounterOfItsOwn({ counter }: Place): boolean {
  return counter.startsWith('lock:');
}

/** A lock of `stray` whose key is the counter of others. It cannot be held alone if the counter is its own. */
export interface OnACounter {
  readonly stray: LockManager;
  readonly name: string;
  readonly mode: LockMode;
}

/** A manager that takes the counter of the lock `{0}` for a lock of its own. */
export async function onTheCounter(place: Place): Promise<OnACounter> {
  const name = 'fence';
  const stray = await place.open({ prefix: place.counter.slice(0, -name.length) });
  return { stray, name, mode: hasCounterOfItsOwn(place) ? 'exclusive' : 'shared' };
}

/** The callers that got the lock, in order; each releases it at once. */
export async function turns(waiting: Readonly<Record<string, Promise<Lock>>>): Promise<string[]> {
  const order: string[] = [];
  const all = Object.entries(waiting).map(async ([who, granted]) => {
    const lock = await granted;
    order.push(who);
    await lock.release();
  });
  await Promise.all(all);
  return order;
}
