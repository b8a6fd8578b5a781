/** A worker in a process of its own, whose jobs block its event loop. Its journal is a list in Redis. */

import * as bullmq6 from 'bullmq';
import * as bullmq5 from 'bullmq5';
import * as bullmq510 from 'bullmq510';
import { connect } from 'holdfast';
import { type JobProcessor, mayBlock, oneAtATime } from 'holdfast/bullmq';
import { Redis } from 'ioredis';
import type { BlockerOptions } from './blockers.js';

const [, , url = '', text = '{}'] = process.argv;
const {
  name,
  blockMs,
  version = '6',
  isKept = true,
  keyed,
  stallTimeout,
  ...options
} = JSON.parse(text) as BlockerOptions;

async function main(): Promise<void> {
  const redis = new Redis(url);
  const locks = await connect(url);
  const note = (what: string, id = '') =>
    redis.rpush('journal', `${what} ${id} ${Date.now()} ${process.pid}`);
  const block: JobProcessor = async ({ id }) => {
    await note('begin', id);
    const end = performance.now() + blockMs;
    while (performance.now() < end);
    await note('end', id);
  };
  const blockOne =
    keyed === true
      ? oneAtATime(
          locks,
          ({ data }) => data.key,
          (job) => block(job, undefined, undefined),
        )
      : block;
  const processor = isKept ? mayBlock(locks, blockOne, { stallTimeout }) : blockOne;
  const connection = {
    host: '127.0.0.1',
    port: Number(new URL(url).port),
    maxRetriesPerRequest: null,
  };
  const versions = { '5.10': bullmq510, '5': bullmq5, '6': bullmq6 };
  const Worker = versions[version].Worker as unknown as typeof bullmq6.Worker;
  const worker = new Worker(name, processor, { connection, ...options });
  worker.on('error', () => {});
  worker.on('ready', () => console.log('ready'));
  process.once('SIGTERM', async () => {
    await worker.close();
    await locks.close();
    process.exit();
  });
}

void main();
