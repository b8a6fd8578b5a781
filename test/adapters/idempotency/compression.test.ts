/** Answers that are compressed, ahead of the middleware and behind it: a repeat can be read by whoever asks. */

import assert from 'node:assert/strict';
import { type IncomingHttpHeaders, request } from 'node:http';
import { after, before, type TestContext, test } from 'node:test';
import { brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib';
import express from 'express';
import fastify from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  memoryStore,
} from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { COMPRESSORS } from './compressors.js';
import { serve } from './plain.js';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const TEXT = JSON.stringify({ paid: 'x'.repeat(3_000) });
const options = () => ({ locks, store: memoryStore(), wait: 20_000 });

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Sends a request with just these codings, and reads the bytes of its answer. */
function send(port: number, key: string, codings: string | undefined): Promise<Answer> {
  const accepts = codings === undefined ? {} : { 'accept-encoding': codings };
  const headers = { 'idempotency-key': key, ...accepts };
  return new Promise((resolve, reject) => {
    const sent = request({ port, method: 'POST', headers, agent: false }, async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      const { statusCode: status, headers: received } = response;
      resolve({ status, headers: received, body: Buffer.concat(chunks) });
    });
    sent.on('error', reject).end();
  });
}

/** The text of an answer in one of the codings that its request has named. */
function textOf({ headers, body }: Answer, codings: string | undefined): string {
  const coding = headers['content-encoding'];
  if (coding === undefined) return body.toString();
  assert.equal(coding, codings, 'a coding that the request does not accept');
  return (coding === 'br' ? brotliDecompressSync(body) : gunzipSync(body)).toString();
}

/** Every pair of codings of a request and its repeat. */
async function isRepeated(port: number): Promise<void> {
  for (const first of ['gzip', 'br', undefined]) {
    for (const again of ['gzip', 'br', undefined]) {
      const key = `${first}-${again}`;
      const [one, two] = [await send(port, key, first), await send(port, key, again)];
      assert.deepEqual([one.status, two.status], [201, 201], key);
      assert.deepEqual([textOf(one, first), textOf(two, again)], [TEXT, TEXT], key);
      assert.equal(two.headers['idempotency-replayed'], 'true', key);
      assert.equal(two.headers['content-type'], one.headers['content-type'], key);
    }
  }
  assert.equal((await locks.query()).held.length, 0);
}

const limited = { timeout: 30_000 };

for (const [way, compress] of Object.entries(COMPRESSORS)) {
  for (const order of ['ahead of', 'behind']) {
    test(
      `Express: a compressor ${order} the middleware, which works ${way}`,
      limited,
      async (t) => {
        const app = express();
        const all = [compress, expressIdempotency(options())];
        app.use(...((order === 'behind' ? all.reverse() : all) as never[]));
        app.post('/', (_request, response) => response.status(201).json(JSON.parse(TEXT)));
        await isRepeated(await serve(t, app));
      },
    );
  }
}

test(
  'Express: an answer in pieces, with a head of its own, behind each compressor',
  limited,
  async (t) => {
    for (const compress of Object.values(COMPRESSORS)) {
      const app = express();
      app.use(compress as never, expressIdempotency(options()));
      app.post('/', (_request, response) => {
        response.writeHead(201, { 'Content-Type': 'application/json' });
        response.write(TEXT.slice(0, 10));
        setImmediate(() => response.end(TEXT.slice(10)));
      });
      await isRepeated(await serve(t, app));
    }
  },
);

async function onFastify(t: TestContext, isAhead: boolean): Promise<number> {
  const app = fastify({ forceCloseConnections: true });
  const compress = () =>
    app.addHook('onSend', async (request, reply, payload) => {
      if (request.headers['accept-encoding'] !== 'gzip') return payload;
      reply.header('content-encoding', 'gzip').removeHeader('content-length');
      return gzipSync(String(payload));
    });
  if (isAhead) compress();
  await app.register(fastifyIdempotency(options()));
  if (!isAhead) compress();
  app.post('/', async (_request, reply) => reply.code(201).send(JSON.parse(TEXT)));
  t.after(() => app.close());
  await app.listen({ host: '127.0.0.1', port: 0 });
  return (app.server.address() as { port: number }).port;
}

test('Fastify: a hook that compresses, ahead of the plugin and behind it', limited, async (t) => {
  for (const isAhead of [true, false]) await isRepeated(await onFastify(t, isAhead));
});

test('a coding that the handler chose for all clients stays', limited, async (t) => {
  const app = express();
  const bytes = gzipSync(TEXT);
  app.use(expressIdempotency(options()));
  app.post('/', (_request, response) => response.setHeader('Content-Encoding', 'gzip').end(bytes));
  const port = await serve(t, app);
  for (let i = 0; i < 2; i++) assert.deepEqual((await send(port, 'a', undefined)).body, bytes);
});

test('fetch: a compressed answer is decoded for a client that accepts none', async () => {
  const idempotent = fetchIdempotency(options());
  const ask = (codings: string) => {
    const headers = { 'idempotency-key': 'a', 'accept-encoding': codings };
    const asked = new Request('http://localhost/', { method: 'POST', headers });
    const zipped = () =>
      new Response(gzipSync(TEXT), { headers: { 'content-encoding': 'gzip', vary: 'a' } });
    return idempotent(asked, zipped);
  };
  assert.equal(gunzipSync(await (await ask('br, gzip;q=0.5')).arrayBuffer()).toString(), TEXT);
  for (const [codings, coding] of [
    ['GZIP', 'gzip'],
    ['gzip;q=0', null],
    ['', null],
  ] as const) {
    const again = await ask(codings);
    assert.equal(again.headers.get('content-encoding'), coding);
    const bytes = Buffer.from(await again.arrayBuffer());
    assert.equal(coding === null ? bytes.toString() : gunzipSync(bytes).toString(), TEXT);
  }
});

/** Sends a request that accepts gzip, and leaves when `when` says so. */
async function leave(port: number, key: string, when: () => boolean): Promise<void> {
  const headers = { 'idempotency-key': key, 'accept-encoding': 'gzip' };
  const sent = request({ port, method: 'POST', headers, agent: false });
  sent.on('error', () => {}).end();
  await until(when, 'the time to leave');
  sent.destroy();
  await until(async () => (await locks.query()).held.length === 0, 'the lock to be free');
}

test(
  'a client that leaves is noticed behind each compressor, and an answer that was ended is stored',
  limited,
  async (t) => {
    for (const [way, compress] of Object.entries(COMPRESSORS)) {
      const app = express();
      let runs = 0;
      app.use(compress as never, expressIdempotency({ ...options(), grace: 20 }));
      app.post('/', ({ headers, socket }, response) => {
        runs += 1;
        if (headers['idempotency-key'] === 'never') return;
        response.status(201).end(TEXT);
        // Ahead of the compressor's own end.
        socket.destroy();
      });
      const port = await serve(t, app);
      await leave(port, 'never', () => runs === 1);
      await leave(port, 'ended', () => runs === 2);
      assert.equal((await send(port, 'never', 'gzip')).status, 409, way);
      const again = await send(port, 'ended', 'gzip');
      assert.deepEqual([again.status, textOf(again, 'gzip'), runs], [201, TEXT, 2], way);
    }
  },
);
