/** Repeated requests, in Express, Fastify and Nest, with each store, on a Redis and in memory. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import {
  expressIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  type IdempotencyOptions,
  type IdempotencyStore,
  memoryStore,
  redisStore,
} from 'holdfast/idempotency';
import { IdempotencyInterceptor } from 'holdfast/nest';
import { createClient } from 'redis';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { FETCH_SERVICES } from './fetch-services.js';
import { NEST_SERVICES } from './nest-services.js';
import { type Pay, post, SERVICES } from './services.js';

let server: RedisServer;
let nodeRedis: ReturnType<typeof createClient>;
const managers: LockManager[] = [];

before(async () => {
  server = await RedisServer.start();
  nodeRedis = createClient({ url: server.url });
  await nodeRedis.connect();
  managers.push(await connect(server.url), await connect('memory:'));
});

after(async () => {
  nodeRedis?.destroy();
  await Promise.all(managers.map((manager) => manager.close()));
  await server?.stop();
});

/** The combinations that are tried. */
const PLACES: Record<string, () => { locks: LockManager; store: IdempotencyStore }> = {
  'Redis by ioredis': () => ({
    locks: managers[0] as LockManager,
    store: redisStore(server.admin),
  }),
  'Redis by node-redis': () => ({
    locks: managers[0] as LockManager,
    store: redisStore(nodeRedis as never),
  }),
  memory: () => ({ locks: managers[1] as LockManager, store: memoryStore() }),
};

/** A payment that counts itself, and ends when it is told to. */
function counting(): { pay: Pay; count: number; goOn: () => void; open: boolean } {
  const waiting: (() => void)[] = [];
  const counter = {
    count: 0,
    open: true,
    goOn() {
      counter.open = true;
      for (const each of waiting.splice(0)) each();
    },
    async pay({ amount = 0 }: { amount?: number }) {
      counter.count += 1;
      if (!counter.open) await new Promise<void>((resolve) => waiting.push(resolve));
      return { status: 201, body: { paid: amount, number: counter.count } };
    },
  };
  return counter;
}

for (const [framework, start] of Object.entries({
  ...SERVICES,
  ...NEST_SERVICES,
  ...FETCH_SERVICES,
})) {
  for (const [place, make] of Object.entries(PLACES)) {
    const matrix = (
      title: string,
      run: (url: string, payments: ReturnType<typeof counting>) => Promise<void>,
      options: Partial<IdempotencyOptions> = {},
      pay?: Pay,
    ) =>
      test(`${framework}, ${place}: ${title}`, async () => {
        const payments = counting();
        // A repeat may come before the answer that its client has got is stored.
        const service = await start({ ...make(), wait: 20_000, ...options }, pay ?? payments.pay);
        try {
          await run(`${service.url}/payments`, payments);
        } finally {
          payments.goOn();
          await service.close();
        }
      });

    matrix(
      'a repeated request gets the same answer, and has its effects once',
      async (url, payments) => {
        for (const key of [randomUUID(), `"${randomUUID()}"`]) {
          const before = payments.count;
          const first = await post(url, key);
          const second = await post(url, key, { body: { amount: 5 } });
          assert.equal(first.status, 201);
          assert.equal(second.digest, first.digest);
          assert.equal(first.headers.get('idempotency-replayed'), null);
          assert.equal(second.headers.get('idempotency-replayed'), 'true');
          assert.equal(payments.count, before + 1);
        }
      },
    );

    matrix('an answer that was written in pieces is the same, too', async (url, payments) => {
      const [raw, key] = [url.replace('payments', 'raw'), randomUUID()];
      const first = await post(raw, key);
      const second = await post(raw, key);
      assert.deepEqual([first.status, first.text, first.headers.get('x-raw')], [202, 'ab', 'yes']);
      assert.equal(second.digest, first.digest);
      assert.equal(payments.count, 1);
    });

    matrix(
      'a concurrent one is answered 409, and the handler is called once',
      async (url, payments) => {
        payments.open = false;
        const key = randomUUID();
        const first = post(url, key);
        await until(() => payments.count === 1, 'the first to run');
        const others = await Promise.all([post(url, key), post(url, key)]);
        for (const { status, headers, text } of others) {
          assert.equal(status, 409);
          assert.equal(headers.get('retry-after'), '1');
          assert.match(headers.get('content-type') ?? '', /^application\/problem\+json/);
          assert.equal(JSON.parse(text).title, 'A request is outstanding for this Idempotency-Key');
        }
        payments.goOn();
        assert.equal((await first).status, 201);
        await until(async () => (await post(url, key)).status === 201, 'the answer to be stored');
        assert.equal(payments.count, 1);
      },
      { wait: 0 },
    );

    matrix('a concurrent one waits for the answer if it may', async (url, payments) => {
      payments.open = false;
      const key = randomUUID();
      const all = Array.from({ length: 5 }, () => post(url, key));
      await until(() => payments.count === 1, 'one to run');
      payments.goOn();
      const digests = new Set((await Promise.all(all)).map(({ digest }) => digest));
      assert.equal(digests.size, 1);
      assert.equal(payments.count, 1);
    });

    matrix('a key with another body or URL is answered 422', async (url, payments) => {
      const key = randomUUID();
      await post(url, key, { body: { amount: 5, to: 'a' } });
      // Where the bytes are at hand, they count.
      const ordered = framework === 'Hono' ? 422 : 201;
      assert.equal((await post(url, key, { body: { to: 'a', amount: 5 } })).status, ordered);
      assert.equal((await post(url, key, { body: { amount: 6, to: 'a' } })).status, 422);
      assert.equal((await post(url.replace('payments', 'refunds'), key)).status, 422);
      assert.equal(payments.count, 1);
    });

    matrix('two callers may use the same key', async (url, payments) => {
      const key = randomUUID();
      const as = (Authorization: string) => post(url, key, { headers: { Authorization } });
      assert.notEqual((await as('Basic a')).digest, (await as('Basic b')).digest);
      assert.equal(payments.count, 2);
    });
  }

  test(`${framework}: malformed keys, missing keys, and methods that need none`, async () => {
    const payments = counting();
    const make = PLACES['memory'] ?? assert.fail();
    const strict = await start({ ...make(), required: true }, payments.pay);
    const lenient = await start(make(), payments.pay);
    try {
      for (const key of ['', '""', '"a', 'a b', 'x'.repeat(256), `"${'x'.repeat(256)}"`]) {
        assert.equal((await post(`${lenient.url}/payments`, key)).status, 400, key);
      }
      assert.equal((await post(`${strict.url}/payments`, undefined)).status, 400);
      assert.equal((await fetch(`${strict.url}/payments`)).status, 201);
      assert.equal((await post(`${lenient.url}/payments`, undefined)).status, 201);
      assert.equal(payments.count, 2);
    } finally {
      await Promise.all([strict.close(), lenient.close()]);
    }
  });

  test(`${framework}: a failure ahead of the effects may be tried again, one after them is kept`, async () => {
    let attempts = 0;
    const make = PLACES['Redis by ioredis'] ?? assert.fail();
    const service = await start(
      { ...make(), wait: 20_000, marksEffects: true },
      async ({ amount }, idempotency) => {
        attempts += 1;
        if (amount === 1) return { status: 503, body: { attempts } };
        await idempotency?.effects();
        return { status: 502, body: { attempts } };
      },
    );
    try {
      for (const [amount, expected] of [
        [1, ['{"attempts":1}', '{"attempts":2}']],
        [2, ['{"attempts":3}', '{"attempts":3}']],
      ] as const) {
        const key = randomUUID();
        const send = () => post(`${service.url}/payments`, key, { body: { amount } });
        assert.deepEqual([(await send()).text, (await send()).text], expected);
      }
    } finally {
      await service.close();
    }
  });
}

test('a record lives for a day while its request runs, then for ttl; and no lock remains', async () => {
  for (const [ttl, unfinished] of [
    [5_000, 86_400_000],
    [100_000_000, 100_000_000],
  ] as const) {
    const store = redisStore(server.admin, { prefix: `kept-${ttl}:` });
    const locks = managers[0] as LockManager;
    const left = async () => {
      const [key = ''] = await server.admin.keys(`kept-${ttl}:*`);
      return server.admin.pttl(key);
    };
    let early = [0, 0];
    const service = await (SERVICES['Express'] ?? assert.fail())(
      { locks, store, ttl, marksEffects: true },
      async (_body, idempotency) => {
        const begun = await left();
        await idempotency?.effects();
        early = [begun, await left()];
        return { status: 201, body: {} };
      },
    );
    try {
      await post(`${service.url}/payments`, randomUUID());
      await until(async () => (await locks.query()).held.length === 0, 'the lock to be free');
    } finally {
      await service.close();
    }
    const near = (ms: number, whole: number) => ms > whole - 60_000 && ms <= whole && ms > 0;
    assert.ok(
      early.every((ms) => near(ms, unfinished)),
      `${early}`,
    );
    assert.ok(near(await left(), ttl), `${await left()}`);
  }
});

test('a store changes a record only from the one that it is, and knows a call that comes again', async () => {
  for (const store of [memoryStore(), redisStore(server.admin), redisStore(nodeRedis as never)]) {
    const id = randomUUID();
    const replace = (from?: string, to?: string) => store.replace(id, from, to, 60_000);
    assert.equal(await store.read(id), undefined);
    for (let i = 0; i < 2; i++) assert.equal(await replace(undefined, 'a'), true);
    assert.deepEqual([await replace(undefined, 'b'), await replace('b', 'c')], [false, false]);
    assert.equal(await store.read(id), 'a');
    for (let i = 0; i < 2; i++) assert.equal(await replace('a', 'b'), true);
    assert.deepEqual([await replace('a', undefined), await store.read(id)], [false, 'b']);
    for (let i = 0; i < 2; i++) assert.equal(await replace('b', undefined), true);
    assert.equal(await store.read(id), undefined);
  }
});

test('wrong options are refused at once', () => {
  const { locks, store } = (PLACES['memory'] ?? assert.fail())();
  const intercept = (options: IdempotencyOptions) => new IdempotencyInterceptor(options);
  for (const make of [expressIdempotency, fastifyIdempotency, fetchIdempotency, intercept]) {
    assert.throws(() => make({ locks } as never), /needs the option "store", such as redisStore/);
    assert.throws(() => make({ store } as never), /needs the option "locks"/);
    assert.throws(() => make({ locks, store, ttl: 5 }), /"ttl" must be whole ms/);
    assert.throws(() => make({ locks, store, grace: -1 }), /"grace" must be whole ms/);
    assert.throws(() => make({ locks, store, maxResponseSize: 0.5 }), /"maxResponseSize" must be/);
    assert.throws(() => make({ locks, store, wiat: 5 } as never), /did you mean "wait"/);
    assert.throws(
      () => make({ locks, store, scope: 'all' } as never),
      /"scope" must be a function/,
    );
  }
});
