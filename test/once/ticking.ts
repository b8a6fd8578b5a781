/** A process with a job of each second. Its journal is a list in Redis. */

import { Cron } from 'croner';
import { connect } from 'holdfast';
import { Redis } from 'ioredis';

const [, , url = ''] = process.argv;
const cron = '* * * * * *';

async function main(): Promise<void> {
  const redis = new Redis(url);
  const locks = await connect(url);
  new Cron(cron, async () => {
    await locks.runOnce('tick', { cron }, async (_, slot, missed) => {
      await redis.rpush('journal', JSON.stringify({ slot, missed }));
    });
  });
}

void main();
