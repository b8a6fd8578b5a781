/**
 * An instance of a service that locks with node-redlock 5, whichever package that is: `process.argv` names
 * it, and nothing else differs. The holder writes that into a ledger, see `rolling.ts`.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionError as Failed, Redlock as RedlockClass } from 'holdfast/redlock';
import { Cluster, Redis } from 'ioredis';

const [name = '', who = '', ledgerUrl = '', kind = '', ...urls] = process.argv.slice(2);
const { default: Redlock, ExecutionError } = require(name) as {
  default: typeof RedlockClass;
  ExecutionError: typeof Failed;
};

const ledger = new Redis(ledgerUrl);
const clients =
  kind === 'cluster'
    ? [new Cluster(urls)]
    : urls.map((url) => new Redis(url, { keyPrefix: 'shop:' }));
for (const client of clients) client.on('error', () => {});
const redlock = new Redlock(clients, { retryCount: 10, retryDelay: 20, retryJitter: 15 });

const RESOURCES = ['{stock}:tea', '{stock}:cake', '{stock}:milk'];
/** No lock ends by itself in this test. */
const DURATION_MS = 30_000;
const TASKS = 3;

let stopping = false;

/** The critical section: a read and a write with a pause in between. */
async function work(resources: readonly string[]): Promise<void> {
  for (const resource of resources) {
    if ((await ledger.incr(`inside:${resource}`)) !== 1)
      await ledger.rpush('overlaps', `${who} ${resource}`);
  }
  const read = await Promise.all(resources.map((resource) => ledger.get(`plain:${resource}`)));
  await sleep(Math.random() * 5);
  await Promise.all(
    resources.map((resource, i) => ledger.set(`plain:${resource}`, Number(read[i] ?? 0) + 1)),
  );
  for (const resource of resources) {
    await ledger.incr(`times:${resource}`);
    await ledger.decr(`inside:${resource}`);
  }
  await ledger.hincrby('by', who, 1);
}

function pick(): string {
  return RESOURCES[Math.floor(Math.random() * RESOURCES.length)] as string;
}

/** Locks one resource by hand, as the README of node-redlock shows. */
async function byHand(): Promise<void> {
  let lock = await redlock.acquire([pick()], DURATION_MS);
  try {
    await work(lock.resources);
    lock = await lock.extend(DURATION_MS);
    await work(lock.resources);
  } finally {
    await lock.release();
  }
}

/** Locks two, for as long as it takes. */
async function automatically(): Promise<void> {
  const both = [...new Set([pick(), pick()])];
  await redlock.using(both, DURATION_MS, async (signal) => {
    await work(both);
    if (signal.aborted) throw signal.error;
  });
}

async function task(): Promise<void> {
  while (!stopping) {
    try {
      await (Math.random() < 0.5 ? byHand() : automatically());
    } catch (error) {
      // Somebody else has it: another time.
      if (!(error instanceof ExecutionError)) throw error;
    }
    await sleep(Math.random() * 40);
  }
}

process.once('message', () => {
  stopping = true;
});

async function main(): Promise<void> {
  await Promise.all(Array.from({ length: TASKS }, task));
  await redlock.quit();
  await ledger.quit();
  process.disconnect();
}

void main();
