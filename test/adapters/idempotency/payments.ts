/** A process that takes payments: its handler hangs where the body of a request says so, until it is told to go on. */

import { redisStore } from 'holdfast/idempotency';
import { Redis } from 'ioredis';
import { connect } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { SERVICES } from './services.js';

async function main(): Promise<void> {
  const [, , url = '', ...flags] = process.argv;
  const redis = new Redis(url);
  const locks = await connect(url, { ttl: 500 });
  const start = SERVICES['Express'];
  if (start === undefined) throw new Error('no such service');
  const options = {
    locks,
    store: redisStore(redis),
    marksEffects: flags.includes('marks'),
    recover: flags.includes('recover'),
  };
  const service = await start(options, async (body, idempotency) => {
    const { point } = body as { point?: string };
    if (idempotency === undefined) throw new Error('no key');
    const { key, interrupted } = idempotency;
    if (interrupted && (await redis.exists(`effects:${key}`)) === 1) {
      return { status: 201, body: { paid: true, recovered: true } };
    }
    const hang = async (here: string) => {
      // Only the first attempt hangs.
      if (point !== here || (await redis.set(`hangs:${key}`, 1, 'NX')) === null) return;
      await until(async () => (await redis.exists(`goon:${key}`)) === 1, 'the word to go on');
    };
    await hang('before');
    await idempotency.effects();
    await redis.incr(`effects:${key}`);
    await hang('after');
    return { status: 201, body: { paid: true } };
  });
  console.log(service.url);
}

void main();
