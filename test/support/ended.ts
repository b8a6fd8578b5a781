/** Ends with each test what it has opened. */

import { afterEach } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { type ConnectTarget, connect, type LockManager } from './holdfast.js';

/** The ends of all that the test has opened: called after it, the last first. */
export const ended: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

/** A manager that is closed after the test. */
export async function manager(
  target: ConnectTarget,
  options: ConnectOptions = {},
): Promise<LockManager> {
  const locks = await connect(target, options);
  ended.push(() => locks.close());
  return locks;
}
