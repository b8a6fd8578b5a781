/** The guards of `holdfast/fence`: `httpFence` of a service, `fencedSet` in Redis, and transactions. */

import assert from 'node:assert/strict';
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from 'express';
import fastify from 'fastify';
import {
  checkFence,
  type Fenced,
  type FenceStore,
  fencedEval,
  fencedSet,
  fencedTransaction,
  fenceTable,
  httpFence,
  memoryFences,
  redisFences,
} from 'holdfast/fence';
import { sleep } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, type Cells, not } from './weather.js';
import { failureOf, gate, many, post, serve, unread } from './web.js';

interface Start {
  readonly store: FenceStore;
  readonly name?: (request: never) => unknown;
  /** Answers by itself as soon as this resolves. */
  readonly ahead?: Promise<void>;
  readonly handle?: () => unknown;
}

interface Service {
  readonly url: string;
  readonly runs: () => number;
}

type Framework = (scene: Scene, start: Start) => Promise<Service>;

const named = (request: { headers: Record<string, unknown> }) => String(request.headers['x-item']);

const onExpress: Framework = async (scene, { store, name = named, ahead, handle }) => {
  const app = express();
  let runs = 0;
  app.use((_request: ExpressRequest, response: ExpressResponse, next: () => void) => {
    void ahead?.then(() => response.status(503).json({ late: true }));
    next();
  });
  app.use(httpFence({ name: name as never, store }) as never);
  app.post('/', async (request: ExpressRequest, response: ExpressResponse) => {
    runs += 1;
    await handle?.();
    response.json((request as { fence?: Fenced }).fence);
  });
  app.use(
    (error: Error, _request: ExpressRequest, response: ExpressResponse, _next: unknown) =>
      void (response.headersSent || response.status(500).json({ message: error.message })),
  );
  return { url: `${await serve(scene, app as never)}/`, runs: () => runs };
};

const onFastify: Framework = async (scene, { store, name = named, ahead, handle }) => {
  const app = fastify({ forceCloseConnections: true });
  let runs = 0;
  app.addHook('onRequest', async (_request, reply) => {
    void ahead?.then(() => reply.code(503).send({ late: true }));
  });
  app.addHook('preHandler', httpFence({ name: name as never, store }));
  app.post('/', async (request) => {
    runs += 1;
    await handle?.();
    return (request as { fence?: Fenced }).fence;
  });
  scene.after(() => app.close());
  return { url: `${await app.listen({ host: '127.0.0.1', port: 0 })}/`, runs: () => runs };
};

const fence = (value: number, item = 'a') => ({ fence: `${value}`, 'x-item': item });

/** The cells of the middleware on one framework. */
function ofHttp(framework: Framework): Cells {
  return {
    async answered(scene) {
      const [asked, go, late] = [gate(), gate(), gate()];
      const fences = memoryFences();
      const store: FenceStore = {
        async raise(...given) {
          asked.open();
          await go.opened;
          return fences.raise(...given);
        },
      };
      for (const value of [34, 33]) {
        const { url, runs } = await framework(scene, { store, ahead: late.opened });
        const sent = post(url, fence(value));
        await asked.opened;
        late.open();
        assert.equal((await sent).status, 503);
        go.open();
        await sleep(20);
        assert.equal(runs(), 0);
      }
    },
    async left(scene) {
      const [asked, go] = [gate(), gate()];
      const store: FenceStore = {
        async raise(_name, value) {
          asked.open();
          await go.opened;
          return value + 1;
        },
      };
      const { url, runs } = await framework(scene, { store });
      const socket = await unread(scene, url, 'POST\r\nFence: 33\r\nX-Item: a');
      await asked.opened;
      socket.destroy();
      go.open();
      await sleep(20);
      assert.equal(runs(), 0);
    },
    async throws(scene) {
      const name = () => assert.fail('no such item');
      const { url, runs } = await framework(scene, { store: memoryFences(), name });
      const answer = await post(url, fence(33));
      assert.deepEqual([answer.status, runs()], [500, 0]);
      assert.match(answer.text, /no such item/);
      for (const raise of [
        () => assert.fail('no fences'),
        async () => assert.fail('no fences'),
        () => Promise.reject(undefined),
      ]) {
        const other = await framework(scene, { store: { raise } });
        const failed = await post(other.url, fence(33));
        assert.deepEqual([failed.status, other.runs()], [500, 0]);
        assert.match(failed.text, /no fences|the request failed by undefined/);
      }
    },
    async refused(scene) {
      const { url, runs } = await framework(scene, { store: redisFences(scene.client()) });
      await weathered.refuse();
      const answer = await post(url, fence(33));
      assert.deepEqual([answer.status, runs()], [500, 0]);
      assert.match(answer.text, /OOM/);
      await weathered.takeAgain();
      assert.equal((await post(url, fence(33))).status, 200);
    },
    async hung(scene) {
      const { url, runs } = await framework(scene, { store: redisFences(scene.client()) });
      weathered.server.pause();
      const answer = await post(url, fence(33));
      assert.deepEqual([answer.status, runs()], [500, 0]);
      assert.match(answer.text, /timed out/i);
      weathered.server.resume();
      assert.equal((await post(url, fence(33))).status, 200);
    },
    async twice(scene) {
      const { url } = await framework(scene, { store: redisFences(scene.client()) });
      const both = await Promise.all([post(url, fence(34)), post(url, fence(34))]);
      assert.deepEqual(
        both.map(({ status }) => status),
        [200, 200],
      );
      const crossed = await Promise.all([post(url, fence(36, 'b')), post(url, fence(35, 'b'))]);
      assert.equal(crossed[0]?.status, 200);
      assert.equal((await post(url, fence(35, 'b'))).status, 412);
    },
    async rubbish(scene) {
      for (const value of [undefined, null, Number.NaN, 'many', {}, -1]) {
        const store = { raise: async () => value as never };
        const { url, runs } = await framework(scene, { store });
        const answer = await post(url, fence(33));
        assert.deepEqual([answer.status, runs()], [500, 0], `${value}`);
        assert.match(answer.text, /"raise" of the store|raise.* of the store/);
      }
      for (const name of [() => undefined, async () => 'a', () => 7]) {
        const { url, runs } = await framework(scene, { store: memoryFences(), name });
        const answer = await post(url, fence(33));
        assert.deepEqual([answer.status, runs()], [500, 0]);
        assert.match(answer.text, /the name of a lock must be a string/);
      }
    },
    stream: not('it reads no body'),
    stopped: not('it holds no lock: who sends the fence does'),
    async separator(scene) {
      const { url } = await framework(scene, { store: redisFences(scene.client()) });
      for (const item of ['a:b', 'a', 'b', '{a}:b', 'a%b', 'a b']) {
        assert.equal((await post(url, fence(34, item))).status, 200);
        assert.equal((await post(url, fence(33, `${item}x`))).status, 200);
        assert.equal((await post(url, fence(33, item))).status, 412);
      }
    },
    async thousand(scene) {
      const { url, runs } = await framework(scene, { store: redisFences(scene.client()) });
      const all = await many(1_000, (i) => post(url, fence(i + 1)));
      const accepted = all.filter(({ status }) => status === 200).length;
      assert.equal(accepted, runs());
      assert.ok(all.every(({ status }) => [200, 412].includes(status)));
      assert.equal((await post(url, fence(999))).status, 412);
    },
    options: not('it has no manager'),
  };
}

/** A lock of the scene, of which this is the fence. */
async function later(scene: Scene): Promise<Fenced> {
  const lock = await (await scene.connect()).acquire(scene.name);
  const { name } = lock;
  const taken = { name, fence: lock.fence };
  await lock.release();
  return taken;
}

const inRedis: Cells = {
  answered: not('it answers no request'),
  left: not('its caller waits for the answer'),
  async throws(scene) {
    const client = scene.client();
    const lock = await later(scene);
    const broken = () => fencedEval(client, lock, "error('mine')", { keys: ['data:a'] });
    assert.match(await failureOf(broken), /mine/);
    await fencedSet(client, lock, 'data:a', 'b');
    assert.equal(await client.get('data:a'), 'b');
  },
  async refused(scene) {
    const client = scene.client();
    const lock = await later(scene);
    await weathered.refuse();
    assert.match(await failureOf(() => fencedSet(client, lock, 'data:a', 'b')), /OOM/);
    await weathered.takeAgain();
    await fencedSet(client, lock, 'data:a', 'c');
    assert.equal(await client.get('data:a'), 'c');
  },
  async hung(scene) {
    const client = scene.client();
    const [early, late] = [await later(scene), await later(scene)];
    weathered.server.pause();
    assert.match(await failureOf(() => fencedSet(client, early, 'data:a', 'b')), /timed out/);
    weathered.server.resume();
    await fencedSet(client, late, 'data:a', 'c');
    assert.match(await failureOf(() => fencedSet(client, early, 'data:a', 'b')), /StaleFenceError/);
    assert.equal(await client.get('data:a'), 'c');
  },
  async twice(scene) {
    const client = scene.client();
    const [early, late] = [await later(scene), await later(scene)];
    const both = [late, early].map((lock) => fencedSet(client, lock, 'data:a', `${lock.fence}`));
    const settled = (await Promise.allSettled(both)).map(({ status }) => status);
    assert.deepEqual(settled, ['fulfilled', 'rejected']);
    assert.equal(await client.get('data:a'), `${late.fence}`);
  },
  async rubbish(scene) {
    const client = scene.client();
    const { fence: value } = await later(scene);
    for (const lock of [undefined, null, {}, { name: 'a' }, { name: 7, fence: value }, 'a']) {
      assert.match(await failureOf(() => fencedSet(client, lock as never, 'data:a', 'b')), /lock/);
    }
    const lock = { name: 'a', fence: value };
    for (const [key, text, cause] of [
      [undefined, 'b', /the first key/],
      ['data:a', undefined, /the value/],
      ['data:a', 7, /the value/],
    ] as const) {
      const set = () => fencedSet(client, lock, key as never, text as never);
      assert.match(await failureOf(set), cause);
    }
    assert.match(await failureOf(() => fencedSet({} as never, lock, 'data:a', 'b')), /client/);
    assert.equal(await client.exists('data:a'), 0);
  },
  stream: not('it has no streams'),
  stopped: {
    async first(scene) {
      const locks = await scene.connect({ ttl: 500 });
      const client = scene.client();
      const write = locks.request(scene.name, (lock) => fencedSet(client, lock, 'data:a', 'first'));
      return { error: await failureOf(() => write) };
    },
    async meanwhile(scene) {
      const locks = await scene.connect();
      const client = scene.client();
      await locks.request(scene.name, (lock) => fencedSet(client, lock, 'data:a', 'second'));
    },
    async judge(returned) {
      assert.match((returned as { error: string }).error, /StaleFenceError/);
      assert.equal(await weathered.server.admin.get('data:a'), 'second');
    },
  },
  async separator(scene) {
    const client = scene.client();
    const [early, late] = [await later(scene), await later(scene)];
    const keys = ['a', 'a:b', '{a}', '{a}:', 'a}b', 'a:guards', '{}a', ''];
    for (const key of keys) await fencedSet(client, early, `${key}`, key);
    for (const key of keys) assert.equal(await client.get(key), key);
    await fencedSet(client, late, 'a', 'late');
    for (const key of keys.slice(1)) await fencedSet(client, early, key, 'early');
  },
  async thousand(scene) {
    const client = scene.client();
    const lock = await later(scene);
    await many(1_000, (i) => fencedSet(client, lock, `data:${i}`, 'b', { ttl: 60_000 }));
    await many(1_000, () => fencedSet(client, lock, 'data:one', 'b'));
    assert.equal((await client.keys('data:*')).length, 1_001);
  },
  async options(scene) {
    const locks = await scene.connect();
    const client = scene.client();
    for (let i = 0; i < 3; i++) {
      await locks.request(scene.name, (lock) => fencedSet(client, lock, 'data:a', `${i}`));
    }
    assert.equal(await client.get('data:a'), '2');
    await locks.close();
  },
};

/** A pool of pg whose statements a test answers: the real ones are in test/fence. */
function poolOf(answers: (statement: string) => unknown) {
  const seen = { released: 0, statements: [] as string[], broken: undefined as unknown };
  const client = {
    async query(statement: string) {
      seen.statements.push(statement.split(' ')[0] ?? '');
      return answers(statement) ?? { rows: [{ fence: 1 }] };
    },
    release(error?: unknown) {
      seen.released += 1;
      seen.broken = error;
    },
    on: () => client,
    off: () => client,
  };
  return { seen, pool: { connect: async () => client } };
}

/** Transactions of SQLite and of a pool. */
const inTransactions: Cells = {
  answered: not('it answers no request'),
  left: not('its caller waits for the answer'),
  async throws(scene) {
    const lock = await later(scene);
    for (const failing of ['INSERT', 'COMMIT', 'BEGIN', 'work', 'ROLLBACK']) {
      const { pool, seen } = poolOf((statement) => {
        if (statement.startsWith(failing)) throw new Error(`no ${failing}`);
      });
      const work = async () => {
        if (['work', 'ROLLBACK'].includes(failing)) throw new Error('no work');
      };
      const cause = failing === 'ROLLBACK' ? /no work/ : new RegExp(`no ${failing}`);
      assert.match(await failureOf(() => fencedTransaction(pool as never, lock, work)), cause);
      assert.equal(seen.released, 1);
      assert.ok(seen.statements.includes('ROLLBACK'));
      assert.equal(seen.broken === undefined, failing !== 'ROLLBACK');
    }
  },
  refused: not('its database is no Redis: test/fence has those that refuse'),
  hung: not('its database is no Redis: test/fence has those that hang'),
  async twice(scene) {
    const db = database();
    const [early, late] = [await later(scene), await later(scene)];
    fencedTransaction(db, late, () => 1);
    fencedTransaction(db, late, () => 1);
    assert.match(await failureOf(() => fencedTransaction(db, early, () => 1)), /StaleFenceError/);
    assert.match(await failureOf(() => checkFence(db, late)), /no transaction is open/);
  },
  async rubbish(scene) {
    const db = database();
    const lock = await later(scene);
    for (const value of [undefined, null, 7]) {
      assert.equal(
        fencedTransaction(db, lock, () => value),
        value,
      );
    }
    const late = () => fencedTransaction(db, lock, async () => 1);
    assert.match(await failureOf(late), /must return a result, not a promise/);
    assert.equal((db as { isTransaction?: boolean }).isTransaction ?? false, false);
    for (const given of [undefined, {}, 7, () => {}]) {
      assert.match(await failureOf(() => fencedTransaction(given as never, lock, () => 1)), /pool/);
      assert.match(await failureOf(() => checkFence(given as never, lock)), /checkFence needs/);
    }
    const { pool } = poolOf(() => ({ rows: 7 }));
    const odd = () => fencedTransaction(pool as never, lock, async () => 1);
    assert.match(await failureOf(odd), /Error/);
  },
  stream: not('it has no streams'),
  stopped: {
    async first(scene) {
      const locks = await scene.connect({ ttl: 500 });
      const db = database(`/tmp/holdfast-${scene.name}.db`);
      const write = locks.request(scene.name, (lock) => fencedTransaction(db, lock, () => 1));
      return { error: await failureOf(() => write) };
    },
    async meanwhile(scene) {
      const locks = await scene.connect();
      const db = database(`/tmp/holdfast-${scene.name}.db`);
      await locks.request(scene.name, (lock) => fencedTransaction(db, lock, () => 1));
    },
    judge: (returned) => assert.match((returned as { error: string }).error, /StaleFenceError/),
  },
  async separator(scene) {
    const db = database();
    const { fence: value } = await later(scene);
    const names = ["a'b", 'a"b', 'a\\b', 'a;b', 'a?b', 'a$1', 'é', 'a%b', ':a'];
    for (const name of names) fencedTransaction(db, { name, fence: value }, () => 1);
    for (const name of names) {
      const early = () => fencedTransaction(db, { name, fence: value - 1 }, () => 1);
      assert.match(await failureOf(early), /StaleFenceError/);
      fencedTransaction(db, { name: `${name}x`, fence: value - 1 }, () => 1);
    }
  },
  async thousand(scene) {
    const db = database();
    const { fence: value } = await later(scene);
    for (let i = 0; i < 1_000; i++) fencedTransaction(db, { name: `n${i}`, fence: value }, () => 1);
    const fences = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`n${i}`, value]));
    fencedTransaction(db, { fences }, () => 1);
  },
  options: not('it has no manager'),
};

/** A database of node:sqlite, or a client that a version of Node without it stands in for. */
function database(file = ':memory:') {
  const { DatabaseSync } = require('node:sqlite') as {
    DatabaseSync: new (
      file: string,
    ) => { exec(sql: string): unknown; prepare(sql: string): { all(): unknown[] } };
  };
  const db = new DatabaseSync(file);
  db.exec(fenceTable('sqlite'));
  return db;
}

const hasSqlite = process.getBuiltinModule?.('node:sqlite') !== undefined;

export const adapters: readonly Adapter[] = [
  { name: 'fences on Express', cells: ofHttp(onExpress) },
  { name: 'fences on Fastify', cells: ofHttp(onFastify) },
  { name: 'fences in Redis', cells: inRedis },
  ...(hasSqlite ? [{ name: 'fences in transactions', cells: inTransactions }] : []),
];
