import { Redis } from 'ioredis';
import Redlock from 'redlock';

const clients = process.env.REDIS_URLS.split(' ').map((url) => new Redis(url));
const redlock = new Redlock(clients, { retryCount: 10, retryDelay: 200 });

export async function sell(item, work) {
  const lock = await redlock.acquire([item], 10_000);
  try {
    await work();
    return true;
  } finally {
    await lock.release();
  }
}

export const close = () => redlock.quit();
