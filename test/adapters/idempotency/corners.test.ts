/** Handlers that answer in unusual ways, and stores, locks and options that fail. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { after, before, type TestContext, test } from 'node:test';
import express, { type Express, type Request, type Response } from 'express';
import fastify, { type RouteHandlerMethod } from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  type IdempotencyOptions,
  memoryStore,
} from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { post } from './services.js';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const held = async () => (await locks.query()).held.length;

/** Serves until the end of the test, and answers the URL. */
async function serve(t: TestContext, app: Express): Promise<string> {
  const server = await new Promise<Server>((resolve) => {
    const starting = app.listen(0, '127.0.0.1', () => resolve(starting));
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

/** An Express whose only handler is this one. */
function onExpress(
  t: TestContext,
  handler: (request: Request, response: Response) => unknown,
  options: Partial<IdempotencyOptions> = {},
): Promise<string> {
  const app = express();
  app.use(
    express.json(),
    expressIdempotency({ locks, store: memoryStore(), wait: 20_000, ...options }),
  );
  app.post('/', handler);
  app.use((error: Error, _request: Request, response: Response, _next: unknown) =>
    response.status(500).json({ failed: error.message }),
  );
  return serve(t, app);
}

async function onFastify(t: TestContext, handler: RouteHandlerMethod): Promise<string> {
  const app = fastify({ forceCloseConnections: true });
  await app.register(fastifyIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  app.post('/', handler);
  t.after(() => app.close());
  return `${await app.listen({ host: '127.0.0.1', port: 0 })}/`;
}

test('Express: a status that does not exist is an error of the handler', async (t) => {
  const url = await onExpress(t, (_request, response) => {
    response.statusCode = 1_000;
    response.end('never sent');
  });
  const key = randomUUID();
  const first = await post(url, key);
  assert.equal(first.status, 500);
  assert.match(first.text, /Invalid status code: 1000/);
  assert.equal((await post(url, key)).digest, first.digest);
  assert.equal(await held(), 0);
});

test('Express: writeHead takes headers as a list, and a status message', async (t) => {
  const url = await onExpress(t, (_request, response) => {
    response.writeHead(202, 'Fine', ['X-Raw', 'yes', 'Content-Type', 'text/plain']).end('a');
  });
  const key = randomUUID();
  for (const { status, headers, text } of [await post(url, key), await post(url, key)]) {
    assert.deepEqual(
      [status, headers.get('x-raw'), headers.get('0'), text],
      [202, 'yes', null, 'a'],
    );
  }
});

test('Fastify: an answer that fails while it is read breaks off, and gives the lock back', async (t) => {
  const url = await onFastify(t, (_request, reply) => {
    const broken = Readable.from(
      (async function* () {
        yield 'a';
        throw new Error('broken');
      })(),
    );
    return reply.send(broken);
  });
  const key = randomUUID();
  await assert.rejects(post(url, key));
  await until(async () => (await held()) === 0, 'the release of the lock');
  assert.match((await post(url, key)).text, /The outcome of the request .* is unknown/);
});

test('Fastify: an answer past Fastify is repeated, too', async (t) => {
  const url = await onFastify(t, (_request, reply) => {
    reply.hijack();
    reply.raw.end('mine');
  });
  const key = randomUUID();
  for (let i = 0; i < 2; i++) assert.equal((await post(url, key)).text, 'mine');
});

test('a release that fails changes no answer and no error', async (t) => {
  const failing = {
    async tryAcquire() {
      const release = () => Promise.reject(new Error('the release failed'));
      return { name: 'a', fence: 33, signal: AbortSignal.abort(), release };
    },
    acquire: () => assert.fail('not to wait'),
  };
  const own = (store: IdempotencyOptions['store']) =>
    onExpress(t, (_request, response) => response.json({}), {
      locks: failing as never,
      store,
      wait: 0,
    });
  const other = { attempt: 'a', fingerprint: 'of another request', fence: 1, state: 'effects' };
  const reads = [undefined, JSON.stringify(other)];
  const late = {
    ...memoryStore(),
    read: async () => reads.shift(),
    replace: async () => false,
  };
  assert.equal((await post(await own(late), randomUUID())).status, 422);
  const broken = { ...memoryStore(), replace: () => Promise.reject(new Error('the store failed')) };
  assert.match((await post(await own(broken), randomUUID())).text, /the store failed/);
});

test('a body with values that have a text of their own is told from others', async (t) => {
  const app = express();
  app.use((request: Request, _response: Response, next: () => void) => {
    Object.assign(request, { body: { at: new Date(Number(request.headers['x-at'])) } });
    next();
  });
  app.use(expressIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  app.post('/', (_request, response) => response.json({}));
  const url = await serve(t, app);
  const key = randomUUID();
  const at = (ms: number) => post(url, key, { headers: { 'X-At': `${ms}` } });
  assert.deepEqual(
    [(await at(1)).status, (await at(1)).status, (await at(2)).status],
    [200, 200, 422],
  );
});

test('bodies that differ have different fingerprints, however deep they are; the order of names does not count', async (t) => {
  const url = await onExpress(t, (_request, response) => response.json({}));
  const send = async (key: string, body: string) => {
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key };
    return (await fetch(url, { method: 'POST', headers, body })).status;
  };
  const deep = (inner: string) => `${'['.repeat(20_000)}${inner}${']'.repeat(20_000)}`;
  const different = [
    ['{"a":1e400}', '{"a":null}'],
    ['[1]', '["1"]'],
    ['[]', '{}'],
    ['["a","b"]', '["a\\",\\"b"]'],
    ['[[1],2]', '[[1,2]]'],
    ['[[],[[]]]', '[[[]],[]]'],
    ['{"a":{"b":1},"c":2}', '{"a":{"b":1,"c":2}}'],
    ['{"__proto__":{"a":1}}', '{"__proto__":{"a":2}}'],
    ['{"a":"{}"}', '{"a":{}}'],
    ['{"a":true}', '{"a":"true"}'],
    [deep('1'), deep('2')],
  ] as const;
  for (const [one, other] of different) {
    const key = randomUUID();
    const told = [await send(key, one), await send(key, one), await send(key, other)];
    assert.deepEqual(told, [200, 200, 422], `${one.slice(0, 40)} ${other.slice(0, 40)}`);
  }
  const key = randomUUID();
  const first = await send(key, '{"b":[{"d":1,"c":2}],"a":1}');
  assert.deepEqual([first, await send(key, '{"a":1,"b":[{"c":2,"d":1}]}')], [200, 200]);
});

test('a body that contains itself is an error', { timeout: 30_000 }, async (t) => {
  const app = express();
  app.use((request: Request, _response: Response, next: () => void) => {
    const body: { self?: object } = {};
    body.self = body;
    Object.assign(request, { body });
    next();
  });
  app.use(expressIdempotency({ locks, store: memoryStore() }));
  app.use((error: Error, _request: Request, response: Response, _next: unknown) =>
    response.status(500).json({ failed: error.message }),
  );
  const { status, text } = await post(await serve(t, app), randomUUID());
  assert.deepEqual([status, /one object in two places/.test(text)], [500, true]);
});

test('a scope that is no text is an error, not one scope for all', async (t) => {
  const scope = (async () => 'a customer') as never;
  const url = await onExpress(t, (_request, response) => response.json({}), { scope });
  const { status, text } = await post(url, randomUUID());
  assert.equal(status, 500);
  assert.match(text, /"failed":"what .+scope.+ returns must be a string, got an object"/);
});

test('methods are a list, in letters of any size', async (t) => {
  const make = (methods: never) => expressIdempotency({ locks, store: memoryStore(), methods });
  for (const wrong of ['POST', [1], [], {}]) {
    assert.throws(() => make(wrong as never), /"methods" must be a list of methods such as 'POST'/);
  }
  let count = 0;
  const url = await onExpress(t, (_request, response) => response.json({ count: ++count }), {
    methods: ['post'],
  });
  const key = randomUUID();
  assert.equal((await post(url, key)).digest, (await post(url, key)).digest);
});

test('by default POST and PATCH are handled once, and a MiB of an answer is stored', async (t) => {
  let count = 0;
  const app = express();
  app.use(express.json(), expressIdempotency({ locks, store: memoryStore() }));
  app.use((request: Request, response: Response) => {
    const bytes = Number(request.url?.slice(1));
    if (bytes > 0) response.end('x'.repeat(bytes));
    else response.json({ count: ++count });
  });
  const url = await serve(t, app);
  const free = () => until(async () => (await held()) === 0, 'the release of the lock');
  const send = async (method: string, key: string, path = '') => {
    const headers = { 'Idempotency-Key': key };
    const response = await fetch(url + path, { method, headers });
    const text = await response.text();
    await free();
    return response.status === 200 ? text : `${response.status}`;
  };
  for (const method of ['POST', 'PATCH', 'PUT', 'DELETE', 'GET']) {
    const [first, second] = [await send(method, method), await send(method, method)];
    assert.equal(first === second, ['POST', 'PATCH'].includes(method), method);
  }
  for (const [bytes, again] of [
    [1_048_576, 'x'.repeat(1_048_576)],
    [1_048_577, '409'],
  ] as const) {
    await send('POST', `${bytes}`, `${bytes}`);
    assert.ok((await send('POST', `${bytes}`, `${bytes}`)) === again, `${bytes} bytes`);
  }
});

test('by default the lock of a client that has gone is held for ten seconds', {
  timeout: 30_000,
}, async (t) => {
  const delays: unknown[] = [];
  const entered = new Promise<AbortController>((resolve) => {
    const abort = new AbortController();
    const url = onExpress(t, () => resolve(abort));
    void url.then((where) => {
      const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': randomUUID() };
      const { signal } = abort;
      fetch(where, { method: 'POST', headers, body: '{}', signal }).catch(() => {});
    });
  });
  const client = await entered;
  const { setTimeout: own } = globalThis;
  t.mock.method(globalThis, 'setTimeout', (...args: Parameters<typeof own>) => {
    delays.push(args[1]);
    return own(...args);
  });
  client.abort();
  await until(() => delays.includes(10_000), 'the timer of the grace');
  assert.equal(await held(), 1);
  for (const { name } of (await locks.query()).held) await locks.forceRelease(name);
});

test('a lock that cannot be asked for is an error, and not the conflict of two requests', async (t) => {
  const fails = () => Promise.reject(new Error('no server'));
  const failing = { acquire: fails, tryAcquire: fails } as never;
  for (const wait of [0, 1_000]) {
    const url = await onExpress(t, () => assert.fail('not to run'), { locks: failing, wait });
    const { status, text } = await post(url, randomUUID());
    assert.deepEqual([status, JSON.parse(text)], [500, { failed: 'no server' }]);
  }
});

test('a failure ahead of the effects may be tried again, whichever its status from 500 on', async (t) => {
  for (const [status, expected] of [
    [499, 1],
    [500, 2],
    [503, 2],
  ] as const) {
    let runs = 0;
    const handler = (_request: Request, response: Response) => {
      runs += 1;
      response.status(status).end();
    };
    const url = await onExpress(t, handler, { marksEffects: true });
    const key = randomUUID();
    for (let i = 0; i < 2; i++) assert.equal((await post(url, key)).status, status);
    assert.equal(runs, expected, `${status}`);
  }
});

test('a repeat has the status message of the answer, and no header that it had not', async (t) => {
  const url = await onExpress(t, (_request, response) => {
    response.statusMessage = 'Very Fine';
    response.removeHeader('X-Powered-By');
    response.end('bytes');
  });
  const key = randomUUID();
  const own = ['connection', 'content-length', 'date', 'idempotency-replayed', 'keep-alive'];
  const send = async () => {
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key };
    const response = await fetch(url, { method: 'POST', headers, body: '{}' });
    const names = Object.keys(Object.fromEntries(response.headers as never)).filter(
      (name) => !own.includes(name),
    );
    return [response.status, response.statusText, names.join(), await response.text()];
  };
  assert.deepEqual(await send(), [200, 'Very Fine', '', 'bytes']);
  // The middleware ahead of this one adds what it adds to every answer.
  assert.deepEqual(await send(), [200, 'Very Fine', 'x-powered-by', 'bytes']);
});

test('Fastify: a repeat has the bytes of the answer: no hook changes it twice, and no type is added', async (t) => {
  const app = fastify({ forceCloseConnections: true });
  await app.register(fastifyIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  let responses = 0;
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request', request.id);
  });
  app.addHook('onSend', async (_request, _reply, payload) =>
    typeof payload === 'string' ? `changed ${payload}` : payload,
  );
  app.addHook('onResponse', async () => {
    responses += 1;
  });
  app.post('/text', async () => 'text');
  app.post('/stream', (_request, reply) => reply.send(Readable.from([Buffer.from('a')])));
  t.after(() => app.close());
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  for (const [path, text, type] of [
    ['/text', 'changed text', 'text/plain; charset=utf-8'],
    ['/stream', 'a', null],
  ] as const) {
    const key = randomUUID();
    const first = await post(url + path, key);
    const again = await post(url + path, key);
    for (const answer of [first, again]) {
      assert.deepEqual([answer.text, answer.headers.get('content-type')], [text, type]);
    }
    assert.equal(again.headers.get('x-request'), first.headers.get('x-request'));
    assert.equal(again.headers.get('idempotency-replayed'), 'true');
  }
  await until(() => responses === 4, 'the hooks after each answer');
});

test('Express: registered for the service and for a route, a request is handled once under one lock', async (t) => {
  const app = express();
  const middleware = () => expressIdempotency({ locks, store: memoryStore(), wait: 20_000 });
  const once = middleware();
  const router = express();
  router.use(once, middleware());
  let count = 0;
  router.post('/', (_request, response) => response.json({ count: ++count }));
  app.use(express.json(), once);
  app.use('/', router);
  const url = await serve(t, app);
  const key = randomUUID();
  assert.equal((await post(url, key)).digest, (await post(url, key)).digest);
  assert.equal(count, 1);
});

test("a manager's linger does not keep the lock of a key", { timeout: 30_000 }, async (t) => {
  const lingering = await connect('memory:', { ttl: 90_000, linger: 30_000 });
  t.after(() => lingering.close());
  for (const wait of [0, 1_000]) {
    const url = await onExpress(t, (_request, response) => response.json({}), {
      locks: lingering,
      wait,
    });
    await post(url, randomUUID());
    await until(
      async () => (await lingering.query()).held.length === 0,
      'the release of the lock',
      15_000,
    );
  }
});

test("a manager's defaults end no lock while a handler works", { timeout: 30_000 }, async (t) => {
  const own = await connect('memory:', { ttl: 500, renew: false, maxHold: 600 });
  t.after(() => own.close());
  let runs = 0;
  const handler = async (_request: Request, response: Response) => {
    runs += 1;
    // Longer than a lease, and than the longest hold.
    const ends = Date.now() + 1_500;
    await until(() => Date.now() > ends, 'the end of the work');
    response.json({ runs });
  };
  const url = await onExpress(t, handler, { locks: own });
  const key = randomUUID();
  const both = await Promise.all([post(url, key), post(url, key)]);
  assert.deepEqual(
    both.map(({ status }) => status),
    [200, 200],
  );
  assert.equal(runs, 1);
});
