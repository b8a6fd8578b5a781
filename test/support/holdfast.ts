/**
 * The package as its users load it, and a check that a test leaves nothing open behind.
 */

import assert from 'node:assert/strict';
import { afterEach, type TestContext } from 'node:test';
import { isMainThread } from 'node:worker_threads';
import * as holdfast from 'holdfast';

export type { Lock, LockManager, LockSet } from 'holdfast';
export { holdfast };

/** A test leaves no more callers waiting for one lock. */
const ROUNDS_MAX = 20;

/** The first argument of `connect`. */
export type ConnectTarget = NonNullable<Parameters<typeof connect>[0]>;

/** The managers of this process. Tests let go of some on purpose. */
const managers: WeakRef<holdfast.LockManager>[] = [];
let pairs = 0;

/** That of the package. What a failed test has left held by its managers is released, so that the next test finds it free. */
export const connect: typeof holdfast.connect = (...given) => {
  const opening = holdfast.connect(...given);
  opening.then(
    (manager) => managers.push(new WeakRef(manager)),
    () => {},
  );
  return opening;
};

/** Closes the managers of this process; no operation may be left open then. */
export async function closeManagers(): Promise<void> {
  await Promise.all(managers.splice(0).map((each) => each.deref()?.close()));
  assert.equal(openOperations(), 0, 'no operation may be left open');
}

/** Two managers on a store inside this process, which they share with nobody. */
export async function openPair(): Promise<[holdfast.LockManager, holdfast.LockManager]> {
  pairs += 1;
  const target = `memory:pair-${pairs}`;
  return Promise.all([connect(target), connect(target)]);
}

/** Whether a manager gets each of these locks at once; it releases them. */
export async function isFree(locks: holdfast.LockManager, ...names: string[]): Promise<boolean> {
  for (const name of names) {
    const lock = await locks.tryAcquire(name);
    if (lock === null) return false;
    await lock.release();
  }
  return true;
}

/** A file of tests, rather than a process that a test has started. */
if (isMainThread && process.argv[1]?.endsWith('.test.js')) {
  afterEach(async (context) => {
    if ((context as TestContext & { readonly passed: boolean }).passed) return;
    const left = managers.flatMap((each) => each.deref() ?? []);
    const ids = new Set(left.map(({ clientId }) => clientId));
    // A server may be away, or refuse to tell.
    await Promise.all(left.map((each) => releaseAll(each, ids).catch(() => {})));
  });
}

/** Releases what these managers hold. Callers that a failed test has left waiting get the locks one after another. */
async function releaseAll(manager: holdfast.LockManager, ids: ReadonlySet<string>): Promise<void> {
  for (let rounds = 0; rounds < ROUNDS_MAX; rounds++) {
    const { held } = await manager.query();
    const own = held.filter(({ clientId }) => ids.has(clientId));
    if (own.length === 0) return;
    for (const { name, token } of own) await manager.forceRelease(name, { token });
  }
}

/** How many operations of this process have no outcome yet. */
export function openOperations(): number {
  // The counter is internal: it is reached by path, past the package's exports.
  const internals = require('../../../dist/internals.js') as { openOperations(): number };
  return internals.openOperations();
}

/**
 * Runs `begin` without the check that a lock's key is no key of another lock: its value is foreign data
 * then, even in a store to which only locks can write.
 */
export function pastTheCheckOfKeys<T>(begin: () => T): T {
  const internals = require('../../../dist/internals.js') as { RESERVED_SUFFIXES: Set<string> };
  const { RESERVED_SUFFIXES: checked } = internals;
  const all = [...checked];
  checked.clear();
  try {
    return begin();
  } finally {
    for (const each of all) checked.add(each);
  }
}
