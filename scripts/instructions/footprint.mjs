// Prints what a manager, a held lock and a waiter take in memory, in bytes. It is run as a process of its own, with the URL
// of a server that nobody else uses.

import { setTimeout as sleep } from 'node:timers/promises';
import { Admin } from '../../bench/admin.mjs';

const [, , url] = process.argv;
/** So many locks are held and so many callers wait before those that are counted: they fill the spare memory. */
const BEFORE = 10_000;
const COUNTED = 40_000;
const AT_ONCE = 5_000;
const HOUR_MS = 3_600_000;
const SETTLE_MS = 300;

const admin = await Admin.connect(url);
const bare = await memory();
const { connect } = await import('../../dist/index.mjs');
const locks = await connect(url, { ttl: HOUR_MS });
await (await locks.acquire('first')).release();
const idle = (await memory()).process - bare.process;

const kept = [];
const held = await cost(async (count) => kept.push(...(await acquireAll(count))));
const waiting = [];
const waiter = await cost(async (count) => {
  for (let i = 0; i < count; i++) waiting.push(locks.acquire('held:0', { wait: HOUR_MS }));
});

const figures = {
  'idle manager': idle,
  'held lock': held.process,
  'held lock, server': held.server,
  waiter: waiter.process,
};
process.stdout.write(JSON.stringify(figures), () => process.exit());

/** What `grow` costs a unit, beyond the first ones. */
async function cost(grow) {
  await grow(BEFORE);
  const before = await memory();
  await grow(COUNTED);
  const after = await memory();
  const each = (place) => (after[place] - before[place]) / COUNTED;
  return { process: each('process'), server: each('server') };
}

async function acquireAll(count) {
  const taken = [];
  while (taken.length < count) {
    const names = Array.from(
      { length: AT_ONCE },
      (_, i) => `held:${kept.length + taken.length + i}`,
    );
    taken.push(...(await Promise.all(names.map((name) => locks.acquire(name, { renew: false })))));
  }
  return taken;
}

/** Bytes in use when nothing is left to be collected. */
async function memory() {
  for (let turn = 0; turn < 3; turn++) {
    await sleep(SETTLE_MS);
    globalThis.gc();
  }
  return { process: process.memoryUsage().rss, server: await admin.memory() };
}
