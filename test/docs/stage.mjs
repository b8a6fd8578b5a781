// The globals of the pages' programs: a program that shows one feature does not show how it opened
// its connections. All of them are real: managers on the server of the test, a database where one runs.

import * as holdfast from 'holdfast';
import pg from 'pg';

const { env } = process;
const given = { ...holdfast, shop: env.SHOP_URL };

/** The work of a service under its lock. */
for (const work of ['finish', 'rebuild', 'report', 'settle', 'transfer'])
  given[work] = async () => {};

if (env.REDIS_URL !== undefined) {
  given.locks = await holdfast.connect(env.REDIS_URL);
  // Another process, so to speak.
  given.others = await holdfast.connect(env.REDIS_URL);
}
/** Returns when a lock has a waiter in its queue. */
given.somebodyWaits = async (name) => {
  for (;;) {
    const { pending } = await given.locks.query({ startsWith: name });
    if (pending.length > 0) return;
  }
};
if (env.DATABASE_URL !== undefined) {
  given.db = new pg.Pool({ connectionString: env.DATABASE_URL, allowExitOnIdle: true });
}

for (const [name, value] of Object.entries(given)) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}
