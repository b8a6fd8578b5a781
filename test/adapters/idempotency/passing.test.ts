/** Answers pass as their handler writes them, in Express, Fastify, Nest and node:http; what a repeat gets of them. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { after, before, type TestContext, test } from 'node:test';
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  Post,
  Res,
  StreamableFile,
  UseInterceptors,
} from '@nestjs/common';
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import express, { type Request, type Response } from 'express';
import fastify from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  type IdempotencyOptions,
  memoryStore,
} from 'holdfast/idempotency';
import { IdempotencyInterceptor } from 'holdfast/nest';
import { map } from 'rxjs';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { bytes, gate, type Handler, listener, serve, Wire } from './plain.js';
import { post } from './services.js';

const UNKNOWN = 'The outcome of the request for this Idempotency-Key is unknown';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const options = (more: Partial<IdempotencyOptions> = {}): IdempotencyOptions => ({
  locks,
  store: memoryStore(),
  wait: 20_000,
  ...more,
});

/** Services whose only handler is this one of node:http: it gets what Node has. */
const FRAMEWORKS: Record<
  string,
  (t: TestContext, handler: Handler, given?: IdempotencyOptions) => Promise<number>
> = {
  'node:http': (t, handler, given) => serve(t, listener(handler, given)),
  Express(t, handler, given) {
    const app = express();
    app.use(express.raw({ type: '*/*' }));
    if (given) app.use(expressIdempotency(given));
    app.post('/', (request: Request, response: Response) => handler(request, response));
    return serve(t, app);
  },
  async Fastify(t, handler, given) {
    const app = fastify({ forceCloseConnections: true });
    app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) =>
      done(null, body),
    );
    if (given) await app.register(fastifyIdempotency(given));
    app.post('/', (request, reply) => {
      reply.hijack();
      const { idempotency } = request as { idempotency?: object };
      handler(Object.assign(request.raw, { idempotency }) as never, reply.raw);
    });
    t.after(() => app.close());
    await app.listen({ host: '127.0.0.1', port: 0 });
    return (app.server.address() as { port: number }).port;
  },
};

/** Ways to answer that were not as Node has them when answers were held back. */
const ANSWERS: Record<string, Handler> = {
  'one piece': (_request, response) => response.end('one'),
  'no body': (_request, response) => response.writeHead(204, { 'X-Raw': 'yes' }).end(),
  'pieces with a length'(_request, response) {
    response.writeHead(200, 'Fine', ['Content-Length', '4', 'X-Raw', 'a', 'X-Raw', 'b']);
    response.write(Buffer.from('ab'));
    response.end('6364', 'hex');
  },
  'a second answer after a part of the first'(_request, response) {
    response.write('part');
    if (response.headersSent) return response.end();
    response.statusCode = 500;
    return response.end('{"error":"HTTP/1.1 200 OK"}');
  },
  'trailers, and a callback'(_request, response) {
    response.writeHead(200, { Trailer: 'X-Sum' });
    response.write('ab', () => {
      response.addTrailers({ 'X-Sum': '2' });
      response.end(() => {});
    });
  },
};

for (const [framework, start] of Object.entries(FRAMEWORKS)) {
  for (const [way, handler] of Object.entries(ANSWERS)) {
    test(`${framework}: ${way}: the bytes are those without the middleware, and a repeat is well framed`, async (t) => {
      const received: string[] = [];
      for (const given of [undefined, options()]) {
        const port = await start(t, handler, given);
        const wire = new Wire(t, port, bytes('a'));
        await until(() => /\r\n\r\n/.test(wire.received), 'the answer');
        wire.socket.write(bytes('b', '/', 'close'));
        await until(() => wire.closed, 'the second answer');
        received.push(wire.received.replaceAll(/^Date: .*\r\n/gm, ''));
        if (given === undefined) continue;
        const url = `http://127.0.0.1:${port}/`;
        const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': 'a' };
        const init = { method: 'POST', headers, body: '{}' };
        const [repeat, again] = [await fetch(url, init), await fetch(url, init)];
        const expected = { 'no body': [204, ''], 'one piece': [200, 'one'] }[way] ?? [
          200,
          way.startsWith('pieces') ? 'abcd' : way.startsWith('a second') ? 'part' : 'ab',
        ];
        assert.deepEqual([repeat.status, await repeat.text()], expected);
        assert.equal(await again.text(), expected[1]);
        const [, first = ''] = wire.received.split('HTTP/1.1 ');
        const raw = Array.from(first.matchAll(/^x-raw: (.*)\r$/gim), ([, value]) => value);
        assert.equal(repeat.headers.get('x-raw') ?? '', raw.join(', '));
        assert.equal(repeat.statusText, /^\d+ (.*)\r/.exec(first)?.[1]);
      }
      assert.equal(received[1], received[0]);
    });
  }

  test(`${framework}: an answer reaches its client while its handler goes on`, async (t) => {
    const goOn = gate();
    const port = await start(
      t,
      async (_request, response) => {
        response.write('first');
        await goOn.opened;
        response.end('last');
      },
      options(),
    );
    const wire = new Wire(t, port, bytes('a'));
    await until(() => wire.received.includes('first'), 'the first part');
    assert.ok(!wire.received.includes('last'));
    goOn.open();
    await until(() => wire.received.includes('last'), 'the last part');
  });

  test(`${framework}: an answer above the limit is not stored, and its request is not run again`, async (t) => {
    let count = 0;
    const port = await start(
      t,
      (request, response) => {
        count += 1;
        const { length } = String(request.headers['x-body'] ?? '');
        response.statusCode = 201;
        for (let i = 0; i < length; i++) response.write('x');
        response.end();
      },
      options({ maxResponseSize: 4 }),
    );
    const send = (key: string, body: string) =>
      post(`http://127.0.0.1:${port}/`, key, { body: {}, headers: { 'X-Body': body } });
    assert.equal((await send('a', '1234')).text, (await send('a', '1234')).text);
    assert.deepEqual([(await send('b', '12345')).status, count], [201, 2]);
    const { status, text } = await send('b', '12345');
    assert.deepEqual([status, count], [409, 2]);
    const { title, detail } = JSON.parse(text);
    assert.equal(title, 'The answer for this Idempotency-Key is not stored');
    assert.match(
      detail,
      /is done, but its answer was too large to be repeated \(it was answered 201\)/,
    );
  });

  test(`${framework}: a repeat gets the headers, but no cookie and none of the connection`, async (t) => {
    const port = await start(
      t,
      (_request, response) => {
        response.setHeader('Set-Cookie', ['session=1', 'b=2']);
        response.writeHead(200, { 'X-Raw': 'yes', 'SET-COOKIE': 'session=3', Date: 'never' });
        response.end('ok');
      },
      options(),
    );
    const url = `http://127.0.0.1:${port}/`;
    const [first, second] = [
      await post(url, 'a', { body: {} }),
      await post(url, 'a', { body: {} }),
    ];
    assert.deepEqual(first.headers.getSetCookie(), ['session=3']);
    assert.deepEqual(second.headers.getSetCookie(), []);
    assert.notEqual(second.headers.get('date'), 'never');
    assert.equal(second.headers.get('x-raw'), 'yes');
  });

  test(`${framework}: two requests with one key at once on one connection get one answer`, async (t) => {
    let count = 0;
    const handler: Handler = (_request, response) => response.end(`number ${++count}.`);
    const port = await start(t, handler, options());
    const wire = new Wire(t, port, bytes('a') + bytes('a'));
    await until(() => wire.received.split('number 1.').length === 3, 'both answers');
    assert.equal(count, 1);
  });
}

test('Express: what a handler has written before it fails reaches the client, as without the middleware', async (t) => {
  const received: string[] = [];
  for (const given of [undefined, options()]) {
    const app = express();
    app.use(express.json());
    if (given) app.use(expressIdempotency(given));
    app.post('/', async (_request, response) => {
      response.write('a part');
      throw new Error('failed');
    });
    // Express prints the errors of handlers otherwise.
    app.use((error: Error, _request: Request, response: Response, _next: unknown) => {
      assert.ok(response.headersSent);
      response.destroy(error);
    });
    const wire = new Wire(t, await serve(t, app), bytes('a'));
    await until(() => wire.closed, 'the end of the connection');
    received.push(wire.received.replace(/^Date: .*\r\n/m, ''));
  }
  assert.match(received[0] ?? '', /a part/);
  assert.equal(received[1], received[0]);
});

test('Express: the path of a router belongs to the request', async (t) => {
  const app = express();
  app.use(express.json());
  const router = express();
  router.use(expressIdempotency(options()));
  router.post('/', (request, response) => {
    assert.equal(request.url?.split('?')[0], '/');
    response.end((request as { baseUrl?: string }).baseUrl);
  });
  app.use('/pay', router).use('/refund', router);
  const url = `http://127.0.0.1:${await serve(t, app)}`;
  assert.equal((await post(`${url}/pay`, 'a')).text, '/pay');
  assert.equal((await post(`${url}/refund`, 'a')).status, 422);
  assert.equal((await post(`${url}/pay?all`, 'a')).status, 422);
  assert.equal((await post(`${url}/pay`, 'a')).text, '/pay');
});

const ADAPTERS: Record<string, () => AbstractHttpAdapter> = {
  'Nest with Express': () => new ExpressAdapter(),
  'Nest with Fastify': () => new FastifyAdapter({ forceCloseConnections: true }),
};

for (const [framework, adapter] of Object.entries(ADAPTERS)) {
  test(`${framework}: files, own answers and interceptors around`, {
    timeout: 60_000,
  }, async (t) => {
    let count = 0;
    class Wrap {
      intercept(_context: ExecutionContext, next: CallHandler) {
        return next.handle().pipe(map((wrapped) => ({ wrapped })));
      }
    }
    @Controller()
    @UseInterceptors(new IdempotencyInterceptor(options()))
    class Files {
      @Post('file')
      file() {
        return new StreamableFile(Buffer.from([0, 255]), {
          type: 'image/x',
          disposition: 'inline',
        });
      }

      @Post('broken')
      broken() {
        count += 1;
        async function* rows() {
          yield 'a part';
          await new Promise((resolve) => setImmediate(resolve));
          throw new Error('broken');
        }
        return new StreamableFile(Readable.from(rows(), { objectMode: false }));
      }

      @Post('own')
      own(@Res() response: { raw?: object; send(text: string): unknown }) {
        count += 1;
        response.send(`own ${count}`);
      }
    }
    @Controller()
    @UseInterceptors(new Wrap(), new IdempotencyInterceptor(options()))
    class Wrapped {
      @Post('wrapped')
      wrapped() {
        count += 1;
        return { count };
      }
    }
    class App {}
    const root = { module: App, controllers: [Files, Wrapped] };
    const app = await NestFactory.create(root, adapter(), { logger: false });
    const failures: unknown[] = [];
    app.useGlobalFilters({ catch: (error) => failures.push(error) });
    await app.listen(0, '127.0.0.1');
    const server = app.getHttpServer();
    t.after(async () => {
      server.closeAllConnections();
      await app.close();
    });
    const { port } = server.address() as { port: number };
    const url = (path: string) => `http://127.0.0.1:${port}/${path}`;

    const init = { method: 'POST', headers: { 'Idempotency-Key': 'file' } };
    for (let i = 0; i < 2; i++) {
      const response = await fetch(url('file'), init);
      assert.deepEqual(
        [...new Uint8Array(await response.arrayBuffer())],
        [0, 255],
        `attempt ${i} of ${framework}`,
      );
      assert.equal(response.headers.get('content-type'), 'image/x');
    }

    await assert.rejects(post(url('broken'), 'broken', { body: {} }));
    await until(async () => (await locks.query()).held.length === 0, 'the lock to be free');
    assert.equal(
      JSON.parse((await post(url('broken'), 'broken', { body: {} })).text).title,
      UNKNOWN,
    );
    assert.equal(count, 1);

    for (let i = 0; i < 2; i++)
      assert.equal((await post(url('own'), 'own', { body: {} })).text, 'own 2');
    for (let i = 0; i < 2; i++) {
      assert.equal(
        (await post(url('wrapped'), 'wrapped', { body: {} })).text,
        '{"wrapped":{"count":3}}',
      );
    }
    // What Nest does after a repeated answer is no error, and does not hurt the connection.
    failures.length = 0;
    const wire = new Wire(t, port);
    await once(wire.socket, 'connect');
    for (const key of ['own', 'wrapped', 'own']) {
      const before = wire.received.length;
      wire.socket.write(bytes(key, `/${key}`));
      await until(() => wire.received.length > before, 'the answer');
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(
      wire.received.split('HTTP/1.1 200').length + wire.received.split('HTTP/1.1 201').length,
      5,
    );
    assert.deepEqual([wire.closed, failures], [false, []]);
  });
}
