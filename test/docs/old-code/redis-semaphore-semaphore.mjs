import { Redis } from 'ioredis';
import { Semaphore } from 'redis-semaphore';

const redis = new Redis(process.env.REDIS_URL);

export async function call(work) {
  const permit = new Semaphore(redis, 'api', 10, { acquireTimeout: 5_000 });
  await permit.acquire();
  try {
    return await work();
  } finally {
    await permit.release();
  }
}

export const close = () => redis.quit();
