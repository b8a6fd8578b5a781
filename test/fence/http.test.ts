/** The middleware for the header `Fence`, in Express, Fastify and node:http. */

import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import express, { type Request, type Response } from 'express';
import fastify from 'fastify';
import { type Fenced, type FenceStore, httpFence, memoryFences, redisFences } from 'holdfast/fence';
import { createClient } from 'redis';
import { RedisServer } from '../support/server.js';

let redis: RedisServer;
let nodeRedis: ReturnType<typeof createClient>;

before(async () => {
  redis = await RedisServer.start();
  nodeRedis = createClient({ url: redis.url });
  await nodeRedis.connect();
});

after(async () => {
  nodeRedis?.destroy();
  await redis?.stop();
});

/** A service that answers with the fence that its handler was given. */
type Service = (store: FenceStore | undefined) => Promise<{ url: string; close(): unknown }>;

const name = (request: { url?: string | undefined }) => `item:${request.url?.split('/')[2]}`;
const options = (store: FenceStore | undefined) => ({
  name,
  ...(store === undefined ? {} : { store }),
});

function listening(server: Server) {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url, close };
}

const SERVICES: Record<string, Service> = {
  async Express(store) {
    const app = express();
    app.use(httpFence(options(store)));
    app.use((request: Request, response: Response) =>
      response.json((request as { fence?: Fenced }).fence ?? {}),
    );
    return new Promise((resolve) => {
      const server = app.listen(0, '127.0.0.1', () => resolve(listening(server)));
    });
  },
  async Fastify(store) {
    const app = fastify();
    app.addHook('preHandler', httpFence(options(store)));
    app.all('/items/:id', async (request) => (request as { fence?: Fenced }).fence ?? {});
    return { url: await app.listen({ host: '127.0.0.1', port: 0 }), close: () => app.close() };
  },
  async 'node:http'(store) {
    const fence = httpFence(options(store));
    const server = createServer((request, response) =>
      fence(request, response, (error) => {
        const body = JSON.stringify((request as { fence?: Fenced }).fence ?? {});
        response.writeHead(error === undefined ? 200 : 500).end(body);
      }),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return listening(server);
  },
};

interface Answer {
  readonly status: number;
  readonly title?: string;
  readonly detail?: string;
}

async function send(url: string, fence?: string, method = 'PUT'): Promise<Answer> {
  const headers = fence === undefined ? {} : { Fence: fence };
  const response = await fetch(url, { method, headers });
  return { status: response.status, ...((await response.json()) as object) };
}

for (const [kind, start] of Object.entries(SERVICES)) {
  test(`${kind}: a smaller fence is answered 412, and the handler gets what is accepted`, async () => {
    const stores = { memory: memoryFences(), ioredis: redisFences(redis.admin, { prefix: kind }) };
    for (const store of [
      ...Object.values(stores),
      redisFences(nodeRedis, { prefix: `${kind}2` }),
    ]) {
      const { url, close } = await start(store);
      try {
        assert.deepEqual(await send(`${url}/items/1`, '34'), {
          status: 200,
          name: 'item:1',
          fence: 34,
        });
        assert.deepEqual(await send(`${url}/items/1`, '34', 'GET'), {
          status: 200,
          name: 'item:1',
          fence: 34,
        });
        const late = await send(`${url}/items/1`, '33');
        assert.deepEqual(
          [late.status, late.title],
          [412, 'A later owner of the lock has been here'],
        );
        assert.match(String(late.detail), /refused the fence 33 of lock "item:1".* used 34 there;/);
        assert.equal((await send(`${url}/items/2`, '33')).status, 200);
      } finally {
        await close();
      }
    }
  });

  test(`${kind}: what is no fence is answered 400, and a write without one 428`, async () => {
    const { url, close } = await start(undefined);
    try {
      for (const fence of [
        '',
        '0',
        'NaN',
        '-1',
        '1e9',
        '1.5',
        '9007199254740992',
        '9999999999999999',
        '99999999999999999',
      ]) {
        assert.equal((await send(`${url}/items/1`, fence)).status, 400, fence);
      }
      assert.equal((await send(`${url}/items/1`, '9007199254740991')).status, 200);
      assert.equal((await send(`${url}/items/1`)).status, 428);
      assert.equal((await send(`${url}/items/1`, undefined, 'GET')).status, 200);
    } finally {
      await close();
    }
  });
}

test('a store that fails is an error of the service, and the handler does not run', async () => {
  const raise = () => Promise.reject(new Error('away'));
  for (const [kind, start] of Object.entries(SERVICES)) {
    const { url, close } = await start({ raise });
    try {
      const { status } = await fetch(`${url}/items/1`, { method: 'PUT', headers: { Fence: '1' } });
      assert.equal(status, 500, kind);
    } finally {
      await close();
    }
  }
});

test('options that do not exist, and a name that is no function, are refused', () => {
  assert.throws(() => httpFence({ name: 'a' } as never), /"name" of httpFence must be a function/);
  assert.throws(() => httpFence({ name, stor: 1 } as never), /did you mean "store"/);
});
