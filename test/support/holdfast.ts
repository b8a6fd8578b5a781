/**
 * The package as its users load it, and a check that a test leaves nothing open behind.
 */

import * as holdfast from 'holdfast';

export { holdfast };
export const { connect } = holdfast;
export type { Lock, LockManager, LockSet } from 'holdfast';

/** The first argument of `connect`. */
export type ConnectTarget = NonNullable<Parameters<typeof connect>[0]>;

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
