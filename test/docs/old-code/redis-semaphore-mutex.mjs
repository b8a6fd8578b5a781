import { Redis } from 'ioredis';
import { Mutex } from 'redis-semaphore';

const redis = new Redis(process.env.REDIS_URL);

export async function sell(item, work) {
  const mutex = new Mutex(redis, item, { lockTimeout: 10_000, acquireTimeout: 5_000 });
  await mutex.acquire();
  try {
    await work();
    return true;
  } finally {
    await mutex.release();
  }
}

export const close = () => redis.quit();
