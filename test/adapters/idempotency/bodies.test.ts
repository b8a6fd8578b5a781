/** Which bodies count as one: the fingerprints of requests. */

import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import express, { type Response as Answer, type Request as Asked } from 'express';
import fastify from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  memoryStore,
} from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serve } from './plain.js';
import { post } from './services.js';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

/** Parsers of a text into values without properties of their own. */
const PARSERS: Record<string, (text: string) => unknown> = {
  URLSearchParams: (text) => new URLSearchParams(text),
  Map: (text) => new Map([['text', text]]),
  'a Map of Maps': (text) => new Map([['text', new Map([[text, 1]])]]),
  Set: (text) => new Set([text]),
  FormData: (text) => {
    const form = new FormData();
    form.set('text', text);
    return form;
  },
  ArrayBuffer: (text) => new TextEncoder().encode(text).buffer,
  DataView: (text) => new DataView(new TextEncoder().encode(text).buffer),
  URL: (text) => new URL(`http://localhost/?${text}`),
};

/** A service of Fastify that parses all bodies so; it answers the status. */
async function parsing(t: TestContext, parse: (text: string) => unknown) {
  const app = fastify();
  app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) =>
    done(null, parse(String(body))),
  );
  await app.register(fastifyIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  app.post('/', async () => 'paid');
  t.after(() => app.close());
  return async (payload: string) => {
    const headers = { 'content-type': 'text/x', 'idempotency-key': 'a' };
    const { statusCode, body } = await app.inject({ method: 'POST', url: '/', headers, payload });
    return statusCode === 500 ? body : statusCode;
  };
}

for (const [kind, parse] of Object.entries(PARSERS)) {
  test(`a body that is parsed into ${kind} is told from others`, async (t) => {
    const send = await parsing(t, parse);
    const told = [await send('amount=5'), await send('amount=5'), await send('amount=500')];
    assert.deepEqual(told, [200, 200, 422]);
  });
}

test('a body whose content cannot be seen is an error, not the same as all others', async (t) => {
  class Hidden {
    readonly #text: string;

    constructor(text: string) {
      this.#text = text;
    }

    get length(): number {
      return this.#text.length;
    }
  }
  for (const [kind, parse] of [
    ['Blob', (text: string) => new Blob([text])],
    ['Hidden', (text: string) => ({ inside: new Hidden(text) })],
    ['ReadableStream', (text: string) => new Response(text).body],
  ] as const) {
    const send = await parsing(t, parse);
    assert.match(String(await send('amount=5')), new RegExp(`has a ${kind}, whose content is not`));
  }
});

test('a Map that contains itself is an error', async (t) => {
  const send = await parsing(t, () => {
    const map = new Map<string, unknown>();
    return map.set('self', map);
  });
  assert.match(String(await send('a')), /one object in two places/);
});

test('Express: a body that no parser has read is an error, also if one has set an empty object', async (t) => {
  const app = express();
  // As the parsers of Express 4 do with bodies of other types.
  app.use((request: Asked, _response: Answer, next: () => void) => {
    Object.assign(request, { body: {} });
    next();
  });
  app.use(express.json(), expressIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  app.post('/', (_request, response) => response.end('paid'));
  app.use((error: Error, _request: Asked, response: Answer, _next: unknown) =>
    response.status(500).end(error.message),
  );
  const url = `http://127.0.0.1:${await serve(t, app)}/`;
  const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
  const { status, text } = await post(url, 'a', { headers: form });
  assert.equal(status, 500);
  assert.match(text, /behind one that parses bodies of its type/);
  assert.equal((await post(url, 'a', { body: {} })).text, 'paid');
});

test('Express: the bytes of a body count where the framework keeps them', async (t) => {
  const app = express();
  app.use(async (request: Asked, _response: Answer, next: () => void) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const rawBody = Buffer.concat(chunks);
    Object.assign(request, { rawBody, body: JSON.parse(rawBody.toString()) });
    next();
  });
  app.use(expressIdempotency({ locks, store: memoryStore(), wait: 20_000 }));
  app.post('/', (_request, response) => response.end('paid'));
  const url = `http://127.0.0.1:${await serve(t, app)}/`;
  const send = async (body: string) => {
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': 'a' };
    return (await fetch(url, { method: 'POST', headers, body })).status;
  };
  // One number for JSON.parse.
  const [one, other] = ['{"a":9007199254740992}', '{"a":9007199254740993}'];
  assert.deepEqual([await send(one), await send(one), await send(other)], [200, 200, 422]);
});

test('fetch: a repeated form has the same body, whatever its boundary', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const send = async (amount: string, file: string) => {
    const body = new FormData();
    body.set('amount', amount);
    body.set('file', new Blob([file]), 'a.txt');
    const headers = { 'idempotency-key': 'form' };
    const request = new Request('http://localhost/', { method: 'POST', headers, body });
    const answer = await idempotent(request, async () => {
      assert.equal((await request.formData()).get('amount'), amount);
      return new Response('paid');
    });
    await answer.text();
    return answer.status;
  };
  const told = [await send('5', 'x'), await send('5', 'x'), await send('500', 'x')];
  assert.deepEqual([...told, await send('5', 'y')], [200, 200, 422, 422]);
});

test('fetch: a boundary in quotes is one as well', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const send = async (boundary: string, amount: string) => {
    const part = `content-disposition: form-data; name="amount"\r\n\r\n${amount}`;
    const headers = {
      'idempotency-key': 'quoted',
      'content-type': `multipart/form-data; boundary="${boundary}"`,
    };
    const body = `--${boundary}\r\n${part}\r\n--${boundary}--\r\n`;
    const request = new Request('http://localhost/', { method: 'POST', headers, body });
    return (await idempotent(request, async () => new Response('paid'))).status;
  };
  const told = [await send('one', '5'), await send('the other', '5'), await send('one', '500')];
  assert.deepEqual(told, [200, 200, 422]);
});
