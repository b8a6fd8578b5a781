/** The middlewares of `holdfast/idempotency`. */

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from 'express';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotencyStore,
  memoryStore,
  redisStore,
} from 'holdfast/idempotency';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, type Cells, not } from './weather.js';
import { gate, many, post, type Seen, seen, serve, unread } from './web.js';

/** How a handler answers; what it throws, it throws before. */
interface Given {
  readonly status?: number;
  readonly body?: unknown;
  /** Sent piece by piece, as fast as it is read. */
  readonly stream?: Readable;
  /** What is no answer at all. */
  readonly rubbish?: 'nothing' | 'a status that does not exist';
}

type Handle = (idempotency: Idempotency | undefined) => Given | Promise<Given>;

interface Service {
  /** Sends the request of a key; `path` is of a route without a parser of bodies. */
  send(key: string, more?: Record<string, string>): Promise<Seen>;
  /** Sends it and leaves when `leaves` resolves. */
  sendAndLeave(key: string, leaves: Promise<void>): Promise<void>;
  /** Sends it and reads nothing of the answer. */
  sendUnread(key: string): Promise<{ leave(): unknown }>;
}

interface Start {
  readonly options: Partial<IdempotencyOptions>;
  readonly handle: Handle;
  /** Answers each request by itself as soon as this resolves, as middleware ahead does after a timeout. */
  readonly ahead?: Promise<void>;
  /** No parser of bodies is there. */
  readonly unparsed?: boolean;
}

type Framework = (scene: Scene, start: Start & { options: IdempotencyOptions }) => Promise<Service>;

const KEY = 'idempotency-key';

function clientOf(scene: Scene, url: string): Service {
  return {
    send: (key, more = {}) => post(url, { [KEY]: key, ...more }),
    async sendAndLeave(key, leaves) {
      const abort = new AbortController();
      const headers = { 'content-type': 'application/json', [KEY]: key };
      const { signal } = abort;
      const sent = fetch(url, { method: 'POST', headers, body: '{"amount":5}', signal });
      void leaves.then(() => abort.abort());
      await assert.rejects(sent, { name: 'AbortError' });
    },
    async sendUnread(key) {
      const socket = await unread(scene, url, `POST\r\nIdempotency-Key: ${key}`);
      return { leave: () => socket.destroy() };
    },
  };
}

const onExpress: Framework = async (scene, { options, handle, ahead, unparsed }) => {
  const app = express();
  app.use((_request: ExpressRequest, response: ExpressResponse, next: () => void) => {
    void ahead?.then(() => response.status(503).json({ late: true }));
    next();
  });
  if (!unparsed) app.use(express.json());
  app.use(expressIdempotency(options));
  app.post('/', async (request: ExpressRequest, response: ExpressResponse) => {
    const { idempotency } = request as { idempotency?: Idempotency };
    const { status = 201, body, stream, rubbish } = await handle(idempotency);
    if (rubbish === 'nothing') return;
    if (rubbish !== undefined) response.statusCode = 1_000;
    else response.statusCode = status;
    if (stream === undefined) response.json(body);
    else stream.pipe(response);
  });
  app.use(
    (error: Error, _request: ExpressRequest, response: ExpressResponse, _next: unknown) =>
      void (response.headersSent || response.status(500).json({ failed: error.message })),
  );
  return clientOf(scene, `${await serve(scene, app as never)}/`);
};

const onFastify: Framework = async (scene, { options, handle, ahead, unparsed }) => {
  const app = fastify({ forceCloseConnections: true });
  if (unparsed) {
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  }
  app.addHook('onRequest', async (_request, reply) => {
    void ahead?.then(() => reply.code(503).send({ late: true }));
  });
  await app.register(fastifyIdempotency(options));
  app.post('/', async (request: FastifyRequest, reply: FastifyReply) => {
    const { idempotency } = request as { idempotency?: Idempotency };
    const { status = 201, body, stream, rubbish } = await handle(idempotency);
    if (rubbish === 'nothing') return undefined;
    reply.code(rubbish === undefined ? status : 1_000);
    return reply.send(stream ?? body);
  });
  scene.after(() => app.close());
  return clientOf(scene, `${await app.listen({ host: '127.0.0.1', port: 0 })}/`);
};

/** By calls of the function itself, as every server of the Fetch API makes them. */
const byFetch: Framework = async (_scene, { options, handle, unparsed }) => {
  const idempotent = fetchIdempotency(options);
  const request = (key: string, more = {}, signal?: AbortSignal) => {
    const headers = { 'content-type': 'application/json', [KEY]: key, ...more };
    const init = { method: 'POST', headers, body: '{"amount":5}', ...(signal && { signal }) };
    return new Request('http://localhost/', init);
  };
  const call = async (asked: Request) => {
    if (unparsed) await asked.text();
    return idempotent(asked, async (idempotency) => {
      const { status = 201, body, stream, rubbish } = await handle(idempotency);
      if (rubbish === 'nothing') return undefined as never;
      if (rubbish !== undefined) return new Response(null, { status: 1_000 });
      const given = stream === undefined ? JSON.stringify(body) : Readable.toWeb(stream);
      return new Response(given as BodyInit, { status });
    });
  };
  return {
    // As a framework answers what its handler throws.
    send: (key, more) =>
      call(request(key, more)).then(seen, (error: Error) => {
        return { status: 500, text: error.message, replayed: false };
      }),
    async sendAndLeave(key, leaves) {
      const abort = new AbortController();
      void leaves.then(() => abort.abort());
      const answer = call(request(key, {}, abort.signal));
      await leaves;
      // The server reads nothing of it.
      void answer;
    },
    async sendUnread(key) {
      const { body } = await call(request(key));
      return { leave: () => body?.cancel() };
    },
  };
};

/** A service whose store is in Redis, and how often its handler has run. */
async function begin(scene: Scene, framework: Framework, given: Partial<Start> = {}) {
  const counts = { runs: 0 };
  const locks = given.options?.locks ?? (await scene.connect());
  const store = redisStore(scene.client(), { prefix: `idempotent:${scene.name}:` });
  const handle: Handle = (idempotency) => {
    counts.runs += 1;
    return given.handle?.(idempotency) ?? { body: { run: counts.runs } };
  };
  const options = { locks, store, ...given.options };
  const service = await framework(scene, { ...given, handle, options });
  return { counts, locks, service };
}

/** A store in memory with a method that does something else. */
function oddStore(methods: Partial<IdempotencyStore> | Record<string, unknown>): IdempotencyStore {
  return { ...memoryStore(), ...methods } as IdempotencyStore;
}

const free = (name = 'the lock of the key to be free') =>
  until(async () => (await weathered.held()).length === 0, name);

const titleOf = ({ text }: Seen) => (JSON.parse(text) as { title?: string }).title ?? '';

function cellsOf(framework: Framework, kind: 'Express' | 'Fastify' | 'fetch'): Cells {
  const answered: Cells['answered'] = async (scene) => {
    const [asked, go, late] = [gate(), gate(), gate()];
    const store = memoryStore();
    const slow = oddStore({
      ...store,
      async read(id: string) {
        asked.open();
        await go.opened;
        return store.read(id);
      },
    });
    const { counts, service } = await begin(scene, framework, {
      options: { store: slow },
      ahead: late.opened,
    });
    const sent = service.send('a');
    await asked.opened;
    late.open();
    assert.equal((await sent).status, 503);
    go.open();
    await free();
    assert.equal(counts.runs, 0, 'a request that was answered runs no handler');
  };
  return {
    answered:
      kind === 'fetch' ? not('whoever calls the function sends what it returns, or not') : answered,
    async left(scene) {
      const [entered, goOn] = [gate(), gate()];
      const { counts, service } = await begin(scene, framework, {
        options: { grace: 0 },
        async handle() {
          entered.open();
          await goOn.opened;
          return { body: { paid: true } };
        },
      });
      await service.sendAndLeave('a', entered.opened);
      await free('the lock to be free `grace` after the client');
      const during = await service.send('a');
      assert.equal(during.status, 409);
      goOn.open();
      await until(async () => (await service.send('a')).status === 201, 'the answer to be kept');
      assert.equal(counts.runs, 1);
    },
    async throws(scene) {
      const throwing = { toJSON: () => assert.fail('no JSON') };
      for (const [what, handle] of Object.entries({
        handler: () => assert.fail('the handler failed'),
        serializer: () => ({ body: throwing }),
      })) {
        const { counts, service } = await begin(scene, framework, { handle });
        assert.match((await service.send(what)).text, /the handler failed|no JSON/);
        await free();
        const again = await service.send(what);
        assert.ok([409, 500].includes(again.status), again.text);
        assert.equal(counts.runs, 1, 'what may have had effects does not run again');
      }
      const scope = () => assert.fail('no such caller');
      const { counts, service } = await begin(scene, framework, { options: { scope } });
      assert.match((await service.send('b')).text, /no such caller/);
      assert.equal(counts.runs, 0);
      await listenerThrows(scene, framework);
    },
    async refused(scene) {
      const { counts, service } = await begin(scene, framework);
      await weathered.refuse();
      const refused = await service.send('a');
      assert.equal(refused.status, 500);
      assert.match(refused.text, /OOM/, 'the cause is told');
      assert.equal(counts.runs, 0);
      await weathered.takeAgain();
      assert.deepEqual([(await service.send('a')).status, counts.runs], [201, 1]);
    },
    async hung(scene) {
      const { counts, service } = await begin(scene, framework);
      weathered.server.pause();
      const hung = await service.send('a');
      assert.equal(hung.status, 500);
      assert.match(hung.text, /timed out|timeout|no answer/i);
      weathered.server.resume();
      await free();
      assert.deepEqual([(await service.send('a')).status, counts.runs], [201, 1]);
    },
    async twice(scene) {
      const { counts, service } = await begin(scene, framework);
      const both = await Promise.all([service.send('a'), service.send('a')]);
      const statuses = both.map(({ status }) => status).sort();
      assert.ok(['201,201', '201,409'].includes(statuses.join()), statuses.join());
      const patient = await begin(scene, framework, { options: { wait: 20_000 } });
      const [one, other] = await Promise.all([
        patient.service.send('b'),
        patient.service.send('b'),
      ]);
      assert.deepEqual([one?.status, other?.status, one?.text], [201, 201, other?.text]);
      assert.deepEqual([counts.runs, patient.counts.runs], [1, 1]);
    },
    async rubbish(scene) {
      const ofHandler = await begin(scene, framework, {
        options: { grace: 0 },
        handle: () => ({ rubbish: 'a status that does not exist' }),
      });
      const odd = await ofHandler.service.send('a');
      assert.equal(odd.status, 500);
      assert.match(odd.text, /status/i);
      await nothing(scene, framework, kind);
      await rubbishOfStore(scene, framework);
    },
    async stream(scene) {
      const endless = () => {
        const [chunk, left] = [Buffer.alloc(65_536), { chunks: 1_000 }];
        return new Readable({
          read() {
            left.chunks -= 1;
            this.push(left.chunks < 0 ? null : chunk);
          },
        });
      };
      const { counts, service } = await begin(scene, framework, {
        handle: () => ({ stream: endless() }),
      });
      const { leave } = await service.sendUnread('a');
      await until(() => counts.runs === 1, 'the handler to run');
      // What is read ahead of a client that does not read, and too large to be kept, is over for the lock.
      if (kind === 'fetch') await free();
      leave();
      await free();
      const repeat = await service.send('a');
      assert.deepEqual([repeat.status, counts.runs], [409, 1]);
      const read = await begin(scene, framework, { unparsed: true });
      assert.match((await read.service.send('b')).text, /the body of the request/);
      assert.equal(read.counts.runs, 0);
    },
    stopped: {
      async first(scene) {
        const { counts, service } = await ofStopped(scene, framework);
        const { status, text } = await service.send('a');
        return { status, text, runs: counts.runs };
      },
      async meanwhile(scene) {
        const { service } = await ofStopped(scene, framework);
        assert.equal((await service.send('a')).status, 201);
      },
      judge(returned) {
        const { status, runs } = returned as { status: number; runs: number };
        assert.deepEqual([status, runs], [201, 0], 'the answer of the other is repeated');
      },
    },
    async separator(scene) {
      const scope = ({ headers }: { headers: Record<string, unknown> }) => String(headers['x-who']);
      const { counts, service } = await begin(scene, framework, { options: { scope } as never });
      const pairs = [
        ['a', 'b:c'],
        ['a:b', 'c'],
        ['a","b', 'c'],
        ['a', '{b}:queue'],
        ['a', 'b%3Ac'],
      ];
      for (const [who = '', key = ''] of [...pairs, ...pairs]) {
        assert.equal((await service.send(key, { 'x-who': who })).status, 201);
      }
      assert.equal(counts.runs, pairs.length);
    },
    async thousand(scene) {
      const { counts, service } = await begin(scene, framework);
      const all = await many(1_000, (i) => service.send(`k${i}`));
      assert.ok(all.every(({ status }) => status === 201));
      const again = await many(1_000, (i) => service.send(`k${i}`));
      assert.ok(again.every(({ status, replayed }) => status === 201 && replayed));
      assert.equal(counts.runs, 1_000);
    },
    async options(scene) {
      const { counts, service } = await begin(scene, framework, {
        async handle() {
          // Longer than the manager's maxHold.
          await sleep(400);
          return { body: {} };
        },
      });
      const first = service.send('a');
      await until(() => counts.runs === 1, 'the first to run');
      const [one, other] = [await service.send('a'), await first];
      assert.deepEqual([other.status, counts.runs], [201, 1]);
      assert.equal(titleOf(one), 'A request is outstanding for this Idempotency-Key');
      await free();
      assert.equal((await service.send('a')).replayed, true);
    },
  };
}

/** A listener of warnings that throws, while an answer cannot be kept: its client has it all the same. */
async function listenerThrows(scene: Scene, framework: Framework): Promise<void> {
  const locks = await scene.connect();
  const listener = () => assert.fail('the listener failed');
  scene.expectUncaught(/the listener failed/);
  locks.on('warning', listener);
  scene.after(() => locks.off('warning', listener));
  const store = memoryStore();
  let writes = 0;
  const failing = oddStore({
    ...store,
    replace: (...given: Parameters<IdempotencyStore['replace']>) => {
      writes += 1;
      return writes > 1 ? Promise.reject(new Error('no room')) : store.replace(...given);
    },
  });
  const { service } = await begin(scene, framework, { options: { locks, store: failing } });
  assert.equal((await service.send('a')).status, 201);
}

/** A handler that answers nothing: its client waits until it leaves, or is told. */
async function nothing(scene: Scene, framework: Framework, kind: string): Promise<void> {
  const entered = gate();
  const { service } = await begin(scene, framework, {
    options: { grace: 0 },
    handle() {
      entered.open();
      return { rubbish: 'nothing' };
    },
  });
  if (kind === 'fetch') assert.match((await service.send('n')).text, /must return a Response/);
  else await service.sendAndLeave('n', entered.opened);
}

async function rubbishOfStore(scene: Scene, framework: Framework): Promise<void> {
  const store = memoryStore();
  // The clients of Redis answer null for what is not there.
  const nulls = oddStore({ ...store, read: async (id: string) => (await store.read(id)) ?? null });
  const known = await begin(scene, framework, { options: { store: nulls } });
  assert.equal((await known.service.send('a')).status, 201);
  assert.deepEqual([(await known.service.send('a')).replayed, known.counts.runs], [true, 1]);
  for (const [methods, cause] of [
    [{ read: async () => 'no JSON' }, /the record .*no JSON/],
    [{ read: async () => 7 }, /read.* of the store/],
    [{ replace: async () => undefined }, /replace.* of the store/],
  ] as const) {
    const { counts, service } = await begin(scene, framework, {
      options: { store: oddStore(methods) },
    });
    const answer = await service.send('a');
    assert.deepEqual([answer.status, counts.runs], [500, 0]);
    assert.match(answer.text, cause);
  }
}

/** Services that share what is stored, in the process that is stopped and in this one. */
async function ofStopped(scene: Scene, framework: Framework) {
  const locks = await scene.connect({ ttl: 500 });
  return begin(scene, framework, { options: { locks } });
}

export const adapters: readonly Adapter[] = [
  { name: 'idempotency on Express', cells: cellsOf(onExpress, 'Express') },
  { name: 'idempotency on Fastify', cells: cellsOf(onFastify, 'Fastify') },
  { name: 'idempotency by fetch', cells: cellsOf(byFetch, 'fetch') },
];
