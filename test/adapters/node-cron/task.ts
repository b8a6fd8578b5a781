/** A process with a task of each second. Its journal is a list in Redis. */

import { connect } from 'holdfast';
import { runCoordinator } from 'holdfast/node-cron';
import { Redis } from 'ioredis';

import cron = require('node-cron');

const [, , url = ''] = process.argv;

async function main(): Promise<void> {
  const redis = new Redis(url);
  const locks = await connect(url);
  cron.setRunCoordinator(runCoordinator(locks));
  const options = { name: 'tick', distributed: true, timezone: 'Europe/Berlin' };
  const task = cron.schedule(
    '* * * * * *',
    ({ date }) => redis.rpush('ran', date.toISOString()),
    options,
  );
  task.on('execution:skipped', async ({ date, reason }) => {
    await redis.rpush('skipped', `${date.toISOString()} ${reason}`);
  });
}

void main();
