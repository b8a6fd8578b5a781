import { Redis } from 'ioredis';
import Redlock from 'redlock';

const redis = new Redis(process.env.REDIS_URL);
const redlock = new Redlock([redis], { retryCount: 10, retryDelay: 200 });

export async function sell(item, work) {
  return redlock.using([item], 5_000, async (signal) => {
    await work();
    if (signal.aborted) throw signal.error;
    return true;
  });
}

export const close = () => redlock.quit();
