import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

const redis = await createClient({ url: process.env.REDIS_URL }).connect();
const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`;

export async function sell(item, work) {
  const token = randomUUID();
  for (
    let attempt = 0;
    (await redis.set(`lock:${item}`, token, { NX: true, PX: 10_000 })) === null;
    attempt++
  ) {
    if (attempt === 50) throw new Error(`somebody else sells ${item}`);
    await sleep(100);
  }
  try {
    await work();
    return true;
  } finally {
    await redis.eval(RELEASE, { keys: [`lock:${item}`], arguments: [token] });
  }
}

export const close = () => redis.close();
