/**
 * Every adapter that answers requests, when somebody else has answered first, as a timeout does: nothing is sent after that,
 * no promise is left unhandled, and every error reaches `next`.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, type TestContext, test } from 'node:test';
import { Controller, Post, UseInterceptors } from '@nestjs/common';
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import fastify from 'fastify';
import { httpFence } from 'holdfast/fence';
import {
  expressIdempotency,
  fastifyIdempotency,
  type IdempotencyStore,
  memoryStore,
} from 'holdfast/idempotency';
import { IdempotencyInterceptor } from 'holdfast/nest';
import { lockUi } from 'holdfast/ui';
import { connect, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';

let locks: LockManager;
const broken: unknown[] = [];
const note = (error: unknown) => broken.push(error);

before(async () => {
  locks = await connect('memory:');
  process.on('unhandledRejection', note).on('uncaughtException', note);
});

after(() => locks.close());

/** How the adapter decides, after the other has answered. */
type Verdict = 'goes on' | 'refuses' | 'fails';

/** What an adapter waits for, when it decides, and what became of its request. */
class Stage {
  /** The adapter is at work. */
  entered = 0;
  handled = 0;
  readonly errors: unknown[] = [];
  readonly store = memoryStore();
  #decide = () => {};
  readonly #decided = new Promise<void>((resolve) => {
    this.#decide = resolve;
  });

  constructor(readonly verdict: Verdict) {}

  /** Only the first request waits. */
  async wait(): Promise<Verdict> {
    this.entered += 1;
    if (this.entered > 1) return 'goes on';
    await this.#decided;
    if (this.verdict === 'fails') throw new Error('it fails');
    return this.verdict;
  }

  decide(): void {
    this.#decide();
  }

  /** A store that waits, and has the record of another request. */
  get slow(): IdempotencyStore {
    const other = { fingerprint: 'of another', attempt: 'a', fence: 1, state: 'effects' };
    return {
      ...this.store,
      read: async (id) =>
        (await this.wait()) === 'refuses' ? JSON.stringify(other) : this.store.read(id),
    };
  }

  get fences() {
    return { raise: async () => ((await this.wait()) === 'refuses' ? 99 : 1) };
  }
}

type Middleware = (
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/** Answers while the adapter waits. */
const overtake = (stage: Stage, response: ServerResponse) =>
  until(() => stage.entered === 1, 'the adapter').then(() => {
    response.writeHead(503).end('too slow');
    response.once('close', () => stage.decide());
  });

/** A service of node:http behind the middleware; each adapter of it has a request that waits. */
const plain = (make: (stage: Stage) => Middleware) => async (t: TestContext, stage: Stage) => {
  const middleware = make(stage);
  let requests = 0;
  const server = createServer((request, response) => {
    request.resume();
    requests += 1;
    if (requests === 1) void overtake(stage, response);
    middleware(request, response, (error) => {
      if (error !== undefined) stage.errors.push(error);
      else {
        stage.handled += 1;
        response.end('handled');
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
};

async function onFastify(t: TestContext, stage: Stage, add: (app: never) => unknown) {
  const app = fastify({ forceCloseConnections: true });
  let requests = 0;
  app.addHook('onRequest', async (_request, reply) => {
    requests += 1;
    if (requests === 1) void overtake(stage, reply.raw);
  });
  await add(app as never);
  app.post('/', async () => {
    stage.handled += 1;
    return 'handled';
  });
  t.after(() => app.close());
  await app.listen({ host: '127.0.0.1', port: 0 });
  return (app.server.address() as AddressInfo).port;
}

const nest = (make: () => AbstractHttpAdapter) => async (t: TestContext, stage: Stage) => {
  @Controller()
  @UseInterceptors(new IdempotencyInterceptor({ locks, store: stage.slow }))
  class Payments {
    @Post()
    pay() {
      stage.handled += 1;
      return 'handled';
    }
  }
  class App {}
  const root = { module: App, controllers: [Payments] };
  const app = await NestFactory.create(root, make(), { logger: false });
  let requests = 0;
  app.use((_request: unknown, response: ServerResponse, next: () => void) => {
    requests += 1;
    if (requests === 1) void overtake(stage, response);
    next();
  });
  await app.listen(0, '127.0.0.1');
  t.after(async () => {
    app.getHttpServer().closeAllConnections();
    await app.close();
  });
  return (app.getHttpServer().address() as AddressInfo).port;
};

type Start = (t: TestContext, stage: Stage) => Promise<number>;

const ADAPTERS: Readonly<Record<string, Start>> = {
  expressIdempotency: plain((stage) => expressIdempotency({ locks, store: stage.slow })),
  fastifyIdempotency: (t, stage) =>
    onFastify(t, stage, (app: { register(plugin: unknown): unknown }) =>
      app.register(fastifyIdempotency({ locks, store: stage.slow })),
    ),
  'IdempotencyInterceptor on Express': nest(() => new ExpressAdapter()),
  'IdempotencyInterceptor on Fastify': nest(
    () => new FastifyAdapter({ forceCloseConnections: true }),
  ),
  httpFence: plain((stage) => httpFence({ name: () => 'a', store: stage.fences })),
  'httpFence on Fastify': (t, stage) =>
    onFastify(t, stage, (app: { addHook(name: string, hook: unknown): unknown }) =>
      app.addHook('preHandler', httpFence({ name: () => 'a', store: stage.fences })),
    ),
  lockUi: plain((stage) =>
    lockUi({ locks, allowRelease: async () => (await stage.wait()) !== 'refuses' }),
  ),
};

for (const [adapter, start] of Object.entries(ADAPTERS)) {
  for (const verdict of ['goes on', 'refuses', 'fails'] as const) {
    test(`${adapter} ${verdict}, but somebody else has answered`, {
      timeout: 30_000,
    }, async (t) => {
      const stage = new Stage(verdict);
      const port = await start(t, stage);
      const path = adapter === 'lockUi' ? '/release' : '/';
      const key = randomUUID();
      const send = async () => {
        const headers = { 'Idempotency-Key': key, Fence: '5', Connection: 'close' };
        const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', headers });
        return `${answer.status} ${await answer.text()}`;
      };
      assert.equal(await send(), '503 too slow');
      await until(async () => (await locks.query()).held.length === 0, 'no lock to be held');
      // The request that is over took no key, and left the server as it was.
      const again = await send();
      if (adapter === 'lockUi') assert.match(again, /^4\d\d /);
      else assert.equal(again.replace(/^20[01] /, ''), 'handled');
      assert.equal(stage.handled, adapter === 'lockUi' ? 0 : 1);
      const isPlain = !/Fastify|fastify|Express$/.test(adapter);
      const messages = stage.errors.map((error) => (error as Error).message);
      if (isPlain) assert.deepEqual(messages, verdict === 'fails' ? ['it fails'] : []);
      assert.deepEqual(broken, []);
    });
  }
}

test('Fastify: what is refused while somebody else is answering does not run, and breaks nothing', async (t) => {
  const stage = new Stage('refuses');
  const app = fastify({ forceCloseConnections: true });
  app.addHook('onRequest', async (_request, { raw }) => {
    raw.writeHead(503);
    raw.write('too ');
    void until(() => stage.entered === 1, 'the adapter').then(() => {
      stage.decide();
      setTimeout(() => raw.end('slow'), 20);
    });
  });
  await app.register(fastifyIdempotency({ locks, store: stage.slow }));
  app.post('/', async () => {
    stage.handled += 1;
    return 'handled';
  });
  t.after(() => app.close());
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const headers = { 'Idempotency-Key': 'a' };
  const answer = await fetch(url, { method: 'POST', headers });
  assert.deepEqual([answer.status, await answer.text()], [503, 'too slow']);
  assert.equal(stage.handled, 0);
});

test('lockUi without next: an error is answered, unless somebody else has', async (t) => {
  const warned: string[] = [];
  const onWarning = ({ message }: Error) => warned.push(message);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const stage = new Stage('fails');
  const failing = lockUi({
    locks,
    allowRelease: () => stage.wait().then(() => Promise.reject(new Error('it fails'))),
  });
  const port = await plain(() => (request, response) => failing(request as never, response))(
    t,
    stage,
  );
  const send = () => fetch(`http://127.0.0.1:${port}/release`, { method: 'POST' });
  assert.equal((await send()).status, 503);
  assert.equal((await send()).status, 500);
  await until(() => warned.filter((each) => each === 'it fails').length === 2, 'both warnings');
  assert.deepEqual(broken, []);
});
