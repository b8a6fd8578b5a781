import { Redis } from 'ioredis';
import { createLock, IoredisAdapter } from 'redlock-universal';

const redis = new Redis(process.env.REDIS_URL);
const adapter = new IoredisAdapter(redis);

export async function sell(item, work) {
  const lock = createLock({ adapter, key: item, ttl: 30_000, retryAttempts: 50, retryDelay: 100 });
  const handle = await lock.acquire();
  try {
    await work();
    return true;
  } finally {
    await lock.release(handle);
  }
}

export const close = () => redis.quit();
