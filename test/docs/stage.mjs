// What the pages take for granted, as globals: a program that shows one thing does not show how it came
// to its connections. All of it is real: managers on the server of the test, a database where one runs.

import * as holdfast from 'holdfast';
import pg from 'pg';

const { env } = process;
const given = { ...holdfast, shop: env.SHOP_URL };

/** What a service would do under its lock. */
for (const work of ['finish', 'rebuild', 'report', 'settle', 'transfer'])
  given[work] = async () => {};

if (env.REDIS_URL !== undefined) {
  given.locks = await holdfast.connect(env.REDIS_URL);
  // Another process, so to speak.
  given.others = await holdfast.connect(env.REDIS_URL);
}
/** Returns when somebody waits in the queue for a lock. */
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
