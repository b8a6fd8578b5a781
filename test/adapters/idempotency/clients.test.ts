/** Clients that go away ahead of an answer, in its middle, and in the tick of its end. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectHttp2, createServer as createHttp2 } from 'node:http2';
import { type AddressInfo, Socket } from 'node:net';
import { pipeline, Readable } from 'node:stream';
import { after, before, type TestContext, test } from 'node:test';
import { expressIdempotency, type IdempotencyOptions, memoryStore } from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';
import { sleep, until } from '../../support/wait.js';
import { bytes, gate, type Handler, listener, serve, Wire } from './plain.js';
import { post } from './services.js';

const A_DAY = 86_400_000;
const UNKNOWN = 'The outcome of the request for this Idempotency-Key is unknown';
/** A test that waits for a lock that is not released fails by this. */
const limited = { timeout: 30_000 };

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

const isFree = () =>
  until(async () => (await locks.query()).held.length === 0, 'the lock to be free');

/** A service whose handler is this one, and a key. With `grace: A_DAY` no lock is given back by time. */
async function start(t: TestContext, handler: Handler, options: Partial<IdempotencyOptions> = {}) {
  const all = { locks, store: memoryStore(), wait: 20_000, grace: A_DAY, ...options };
  const port = await serve(t, listener(handler, all));
  const key = randomUUID();
  const again = () => post(`http://127.0.0.1:${port}/`, key, { body: {} });
  return { port, key, again };
}

test(
  'a client goes away, and the handler answers later: its answer is stored',
  limited,
  async (t) => {
    const entered = gate();
    let count = 0;
    let signal: AbortSignal | undefined;
    const handler: Handler = async ({ idempotency }, response) => {
      count += 1;
      entered.open();
      await once(response, 'close');
      signal = idempotency?.signal;
      response.writeHead(201, { 'X-Raw': 'yes' }).end('paid');
    };
    const { port, key, again } = await start(t, handler, { grace: 50 });
    const wire = new Wire(t, port, bytes(key));
    await entered.opened;
    wire.socket.destroy();
    await isFree();
    const { status, text, headers } = await again();
    assert.deepEqual([status, text, headers.get('x-raw'), count], [201, 'paid', 'yes', 1]);
    // Later than the end of grace would be.
    await sleep(60);
    assert.equal(signal?.aborted, false);
  },
);

test(
  'a client goes away, and the handler never answers: it is told after grace, and the lock is free',
  limited,
  async (t) => {
    const [entered, told] = [gate(), gate()];
    let reason: unknown;
    const { port, key, again } = await start(
      t,
      ({ idempotency }) => {
        entered.open();
        idempotency?.signal.addEventListener('abort', () => {
          reason = idempotency.signal.reason;
          told.open();
        });
      },
      { grace: 50 },
    );
    const wire = new Wire(t, port, bytes(key));
    await entered.opened;
    wire.socket.destroy();
    await told.opened;
    assert.match(String(reason), /went away 50 ms ago \("grace"\): its lock was released/);
    await isFree();
    assert.equal(JSON.parse((await again()).text).title, UNKNOWN);
  },
);

test('a response that is destroyed gives the lock back', limited, async (t) => {
  const { again } = await start(t, (_request, response) => response.destroy(), { grace: 20 });
  await assert.rejects(again());
  await isFree();
  assert.equal(JSON.parse((await again()).text).title, UNKNOWN);
});

test(
  'an answer that breaks off is not stored, also if it is ended later, and frees the lock at once',
  limited,
  async (t) => {
    for (const end of [true, false]) {
      const failed = gate();
      const { port, key, again } = await start(t, (_request, response) => {
        let n = 0;
        const rows = new Readable({
          read() {
            n += 1;
            setImmediate(() => this.push(`row ${n}\n`));
          },
        });
        pipeline(rows, response, () => {
          if (end) response.end('the rest');
          failed.open();
        });
      });
      const wire = new Wire(t, port, bytes(key));
      await until(() => wire.received.includes('row 3'), 'some rows');
      wire.socket.destroy();
      await failed.opened;
      await isFree();
      const { status, text } = await again();
      assert.deepEqual([status, JSON.parse(text).title], [409, UNKNOWN]);
    }
  },
);

test('a source that fails in the middle of an answer is not stored', limited, async (t) => {
  const { again } = await start(t, (_request, response) => {
    response.write('a part');
    setImmediate(() => response.destroy(new Error('broken')));
  });
  await assert.rejects(again());
  await isFree();
  assert.equal(JSON.parse((await again()).text).title, UNKNOWN);
});

test(
  'a connection that ends in the tick of the answer: the answer is stored',
  limited,
  async (t) => {
    const ways: Handler[] = [
      ({ socket }, response) => {
        socket.destroy();
        response.end('paid');
      },
      ({ socket }, response) => {
        response.end('paid');
        socket.destroy();
      },
    ];
    for (const handler of ways) {
      let count = 0;
      const { again } = await start(t, (request, response) => {
        count += 1;
        if (count === 1) return handler(request, response);
        return response.end('twice');
      });
      // The client may have got it.
      await again().catch(() => {});
      await isFree();
      assert.equal((await again()).text, 'paid');
    }
  },
);

test(
  'a client that goes away before its handler begins: the handler runs, and its answer is stored',
  limited,
  async (t) => {
    const [goOn, reading] = [gate(), gate()];
    const store = memoryStore();
    const slow = {
      ...store,
      async read(id: string) {
        reading.open();
        await goOn.opened;
        return store.read(id);
      },
    };
    let closed = false;
    const { port, key, again } = await start(
      t,
      ({ socket }, response) => {
        closed ||= socket.destroyed;
        response.end('paid');
      },
      { store: slow },
    );
    const wire = new Wire(t, port, bytes(key));
    await reading.opened;
    wire.socket.destroy();
    await once(wire.socket, 'close');
    // By then the server has learnt of it.
    await fetch(`http://127.0.0.1:${port}/`);
    goOn.open();
    await until(() => closed, 'the handler');
    await isFree();
    assert.equal((await again()).text, 'paid');
  },
);

test(
  'a response that waits behind another one on its connection gives its lock back',
  limited,
  async (t) => {
    for (const answers of [true, false]) {
      const [entered, goOn] = [gate(), gate()];
      const key = randomUUID();
      const { port } = await start(
        t,
        async ({ headers, socket }, response) => {
          // The first request on the connection is never answered.
          if (headers['idempotency-key'] !== key) return;
          entered.open();
          socket.once('close', () => goOn.open());
          await goOn.opened;
          if (answers) response.end('second');
        },
        { grace: 50 },
      );
      const wire = new Wire(t, port, bytes(randomUUID()) + bytes(key));
      await entered.opened;
      wire.socket.destroy();
      await isFree();
      const { text } = await post(`http://127.0.0.1:${port}/`, key, { body: {} });
      assert.equal(answers ? text : JSON.parse(text).title, answers ? 'second' : UNKNOWN);
    }
  },
);

test(
  'requests on one connection, one after the other and at once, leave no listener and no timer',
  limited,
  async (t) => {
    const signals: AbortSignal[] = [];
    let socket = new Socket();
    let missing = 0;
    const handler: Handler = async (request, response) => {
      socket = request.socket;
      if (request.idempotency) signals.push(request.idempotency.signal);
      missing -= 1;
      // The others wait behind the first, until all have been handled.
      const isFirst = request.headers['idempotency-key']?.toString().startsWith('first');
      if (isFirst) await until(() => missing === 0, 'the others');
      response.end('ok');
    };
    const { port } = await start(t, handler, { grace: 0 });
    const wire = new Wire(t, port);
    const answers = () => wire.received.split('HTTP/1.1 200').length - 1;
    const send = async (count: number) => {
      const before = answers();
      missing = count;
      const others = Array.from({ length: count - 1 }, () => bytes(randomUUID()));
      wire.socket.write(bytes(`first-${randomUUID()}`) + others.join(''));
      await until(() => answers() === before + count, 'the answers');
      await isFree();
    };
    await send(1);
    const listeners = () => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
    const first = listeners();
    for (const count of [1, 5, 1, 5, 5, 1]) await send(count);
    assert.deepEqual(listeners(), first);
    wire.socket.destroy();
    await until(() => socket.destroyed, 'the end of the connection');
    await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(signals.filter(({ aborted }) => aborted).length, 0);
  },
);

test(
  'HTTP/2: answers are stored, and streams that end early give the lock back',
  limited,
  async (t) => {
    let count = 0;
    const reached = gate();
    const middleware = expressIdempotency({ locks, store: memoryStore(), wait: 20_000, grace: 50 });
    const server = createHttp2((request, response) => {
      middleware(request as never, response as never, () => {
        count += 1;
        if (request.headers['idempotency-key'] === 'never') return reached.open();
        response.setHeader('x-raw', 'yes');
        response.write('a');
        response.end('b');
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    t.after(() => {
      session.destroy();
      server.close();
    });
    const send = (key: string) =>
      session.request({ ':method': 'POST', ':path': '/', 'idempotency-key': key });
    const answer = async (key: string) => {
      const stream = send(key);
      const [headers] = await once(stream, 'response');
      let text = '';
      for await (const chunk of stream) text += chunk;
      return [headers[':status'], headers['x-raw'], text];
    };
    assert.deepEqual(await answer('a'), [200, 'yes', 'ab']);
    assert.deepEqual([await answer('a'), count], [[200, 'yes', 'ab'], 1]);
    const never = send('never');
    await reached.opened;
    never.close();
    await isFree();
    assert.equal(JSON.parse(`${(await answer('never'))[2]}`).title, UNKNOWN);
  },
);
