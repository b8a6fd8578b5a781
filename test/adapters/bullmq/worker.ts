/** A worker in a process of its own. Its journal is a list in Redis. */

import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'bullmq';
import { connect } from 'holdfast';
import { oneAtATime } from 'holdfast/bullmq';
import { Redis } from 'ioredis';

const [, , url = '', name = ''] = process.argv;
const JOB_MS = 200;

async function main(): Promise<void> {
  const redis = new Redis(url);
  const locks = await connect(url, { ttl: 1_000 });
  const note = (what: string, customer: string, number: number, fence: number) =>
    redis.rpush('journal', `${what} ${customer} ${number} ${fence} ${process.pid}`);
  const processor = oneAtATime(
    locks,
    (job) => job.data.customer,
    async ({ data: { customer, number } }, lock) => {
      await note('begin', customer, number, lock.fence);
      await sleep(JOB_MS);
      await note('end', customer, number, lock.fence);
    },
  );
  const connection = {
    host: '127.0.0.1',
    port: Number(new URL(url).port),
    maxRetriesPerRequest: null,
  };
  const stalls = { lockDuration: 1_000, stalledInterval: 300, maxStalledCount: 10 };
  const worker = new Worker(name, processor, { connection, concurrency: 4, ...stalls });
  worker.on('error', () => {});
  worker.on('ready', () => console.log('ready'));
}

void main();
