/** `fetchIdempotency`: what its answers, errors and clients that leave do to a key. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fetchIdempotency, memoryStore } from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

function ask(key: string, more: RequestInit = {}): Request {
  const headers = { 'idempotency-key': key };
  return new Request('http://localhost/pay?a=1', { method: 'POST', headers, body: 'x', ...more });
}

const free = () =>
  until(async () => (await locks.query()).held.length === 0, 'the lock to be free');

test('the handler reads the body, and answers without a body and with several cookies pass', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const post = (request: Request) =>
    idempotent(request, async (idempotency) => {
      assert.equal(await request.text(), 'x');
      assert.equal(idempotency?.interrupted, false);
      const answer = new Response(null, { status: 204, headers: { 'X-Own': 'a' } });
      answer.headers.append('Set-Cookie', 'a=1');
      answer.headers.append('Set-Cookie', 'b=2');
      return answer;
    });
  const first = await post(ask('none'));
  await free();
  const again = await post(ask('none'));
  assert.deepEqual([first.status, first.headers.getSetCookie()], [204, ['a=1', 'b=2']]);
  assert.deepEqual([again.status, again.headers.getSetCookie()], [204, []]);
  assert.deepEqual([again.headers.get('x-own'), again.body], ['a', null]);
});

test('an answer is kept before its end, and one that is too large passes and is not', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore(), maxResponseSize: 3 });
  for (const [text, status] of [
    ['abc', 200],
    ['abcd', 409],
  ] as const) {
    const answer = await idempotent(ask(text), () => new Response(text));
    assert.equal(await answer.text(), text);
    assert.equal((await locks.query()).held.length, 0, 'its lock is free at its end');
    const again = await idempotent(ask(text), () => assert.fail());
    assert.equal(again.status, status);
  }
});

test('a handler that throws leaves the outcome unknown, and a body that was read is told', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const failing = idempotent(ask('throws'), () => {
    throw new Error('no card');
  });
  await assert.rejects(failing, /no card/);
  const again = await idempotent(ask('throws'), () => assert.fail());
  assert.match(await again.text(), /The outcome of the request/);
  const read = ask('read');
  await read.text();
  await assert.rejects(
    idempotent(read, () => assert.fail()),
    { name: 'TypeError', message: /read already/ },
  );
});

test('an answer to a client that has gone is kept, and a lock ends after the grace', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore(), grace: 20 });
  const gone = new AbortController();
  await idempotent(ask('gone', { signal: gone.signal }), async () => {
    gone.abort();
    return new Response('paid');
  });
  assert.equal(await (await idempotent(ask('gone'), () => assert.fail())).text(), 'paid');
  const away = new AbortController();
  await idempotent(ask('away', { signal: away.signal }), async (idempotency) => {
    away.abort();
    const signal = idempotency?.signal ?? assert.fail();
    await until(() => signal.aborted, 'the end of the grace');
    assert.match(String(signal.reason), /went away 20 ms ago/);
    return new Response('late');
  });
  await free();
});

test('an answer that its client leaves halfway is not kept, and frees the lock', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  let cancelled = false;
  const endless = new ReadableStream({
    pull: (controller) => controller.enqueue(Buffer.from('a')),
    cancel: () => {
      cancelled = true;
    },
  });
  const answer = await idempotent(ask('halfway'), () => new Response(endless));
  const reader = answer.body?.getReader();
  await reader?.read();
  await reader?.cancel();
  await free();
  assert.equal(cancelled, true);
  const again = await idempotent(ask('halfway'), () => assert.fail());
  assert.equal(again.status, 409);
});

test('an answer that nobody reads is kept, and frees the lock', { timeout: 30_000 }, async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore(), maxResponseSize: 4 });
  for (const [text, again] of [
    ['paid', 'paid'],
    ['more than is kept', 'The answer for this Idempotency-Key is not stored'],
  ] as const) {
    const pieces = new ReadableStream({
      async pull(controller) {
        await new Promise((resolve) => setImmediate(resolve));
        controller.enqueue(Buffer.from(text));
        controller.close();
      },
    });
    const unread = await idempotent(ask(text.slice(0, 4)), () => new Response(pieces));
    await free();
    const repeat = await (await idempotent(ask(text.slice(0, 4)), () => assert.fail())).text();
    assert.equal(again === 'paid' ? repeat : JSON.parse(repeat).title, again);
    assert.equal(await unread.text(), text, 'it can be read later');
  }
});

test('an answer that is too large to be kept is read at the pace of its client', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore(), maxResponseSize: 3 });
  let pieces = 0;
  const endless = new ReadableStream({
    pull(controller) {
      pieces += 1;
      controller.enqueue(Buffer.from('a'));
    },
  });
  const answer = await idempotent(ask('endless'), () => new Response(endless));
  await free();
  const before = pieces;
  const reader = answer.body?.getReader() ?? assert.fail();
  for (let i = 0; i < 20; i++) assert.equal((await reader.read()).done, false);
  assert.ok(before < 10 && pieces < 30, `${before} and ${pieces} pieces were read`);
  await reader.cancel();
});

test('a source that fails while it is read ahead fails its reader, is not kept, and frees the lock', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const failing = new ReadableStream({
    pull(controller) {
      controller.error(new Error('no rows'));
    },
  });
  const answer = await idempotent(ask('fails'), () => new Response(failing));
  await free();
  await assert.rejects(answer.text(), /no rows/);
  const again = await idempotent(ask('fails'), () => assert.fail());
  assert.match(await again.text(), /The outcome of the request/);
});

test('what is no answer is an error that says so, and frees the lock', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const used = new Response('used');
  await used.text();
  const locked = new Response('locked');
  locked.body?.getReader();
  for (const [key, wrong, what] of [
    ['undefined', undefined, /got undefined/],
    ['null', null, /got null/],
    ['object', { status: 200 }, /got an object/],
    ['error', Response.error(), /got a Response of an error/],
    ['used', used, /whose body is read already/],
    ['locked', locked, /whose body is read already/],
  ] as const) {
    const failing = idempotent(ask(key), () => wrong as never);
    await assert.rejects(failing, { name: 'TypeError', message: what });
    assert.equal((await locks.query()).held.length, 0, key);
    const again = await idempotent(ask(key), () => assert.fail());
    assert.match(await again.text(), /The outcome of the request/);
  }
});

test('a status text is repeated', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const post = () => idempotent(ask('text'), () => new Response('a', { statusText: 'Fine' }));
  await (await post()).text();
  assert.equal((await post()).statusText, 'Fine');
});

const DAY = 86_400_000;

test('each option has its bounds, and is refused by its name beyond them', () => {
  const given = { locks, store: memoryStore() };
  for (const options of [
    { wait: 0, grace: 0, maxResponseSize: 0, ttl: 1_000 },
    { wait: DAY, grace: DAY, maxResponseSize: 268_435_456, ttl: Number.MAX_SAFE_INTEGER },
    { wait: '1d', grace: '1d', ttl: '1s', required: false, marksEffects: true, recover: true },
    { methods: ['put'], scope: 'public' },
  ] as const) {
    assert.ok(fetchIdempotency({ ...given, ...options }));
  }
  for (const [name, ...values] of [
    ['wait', -1, DAY + 1, '2d', null],
    ['grace', -1, DAY + 1, 0.5],
    ['maxResponseSize', -1, 268_435_457, '1s'],
    ['ttl', 999, 0, Number.MAX_SAFE_INTEGER + 1, Number.POSITIVE_INFINITY],
    ['required', 1, null],
    ['marksEffects', 'yes'],
    ['recover', 0],
    ['methods', [], 'POST', [5], ['POST', undefined]],
    ['scope', 5, null],
    ['locks', {}, null],
    ['store', {}, null],
  ] as const) {
    for (const value of values) {
      const make = () => fetchIdempotency({ ...given, [name]: value } as never);
      assert.throws(make, (error: Error) => error.message.includes(`"${name}"`), `${value}`);
    }
  }
});

test('a key is a string in quotes, or its text without them, of 1 to 255 characters', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const keyOf = async (header: string) => {
    const answer = await idempotent(ask(header), (given) => new Response(given?.key));
    return answer.status === 200 ? await answer.text() : answer.status;
  };
  const [most, more] = ['k'.repeat(255), 'k'.repeat(256)];
  const pairs: [string, unknown][] = [
    ['"with space"', 'with space'],
    ['"a\\"b\\\\c"', 'a"b\\c'],
    ['"!#[]~"', '!#[]~'],
    ['plain!#~', 'plain!#~'],
    [`"${most}"`, most],
    [`x${most.slice(1)}`, `x${most.slice(1)}`],
    [`"${more}"`, 400],
    [more, 400],
    ['""', 400],
    ['"', 400],
    ['with space', 400],
    ['with"quote', 400],
    ['"a"b"', 400],
    ['"a\\b"', 400],
    ['"\u00e9"', 400],
    ['\u00e9', 400],
  ];
  for (const [header, key] of pairs) assert.equal(await keyOf(header), key, header);
});

test('each refusal says what is wrong, and only one that may be repeated says when', async () => {
  const options = { locks, store: memoryStore() };
  const idempotent = fetchIdempotency({ ...options, required: true, maxResponseSize: 1 });
  const told = async (request: Request) => {
    const answer = await idempotent(request, () => assert.fail());
    const { title, detail } = (await answer.json()) as { title: string; detail: string };
    const after = answer.headers.get('retry-after');
    return { status: answer.status, title, detail, after };
  };
  const bare = new Request('http://localhost/pay', { method: 'POST', body: 'x' });
  const missing = await told(bare);
  assert.deepEqual([missing.status, missing.after], [400, null]);
  assert.match(missing.title, /^Idempotency-Key is missing$/);
  const malformed = await told(ask('a b'));
  assert.deepEqual([malformed.status, malformed.after], [400, null]);
  assert.match(malformed.title, /is malformed/);
  const large = await idempotent(ask('key'), async () => {
    const outstanding = await told(ask('key'));
    assert.deepEqual([outstanding.status, outstanding.after], [409, '1']);
    assert.match(outstanding.title, /is outstanding/);
    return new Response('large', { status: 201 });
  });
  assert.equal(await large.text(), 'large');
  const unkept = await told(ask('key'));
  assert.deepEqual([unkept.status, unkept.after], [409, null]);
  assert.match(unkept.detail, /too large to be repeated \(it was answered 201\)$/);
  const reused = await told(ask('key', { body: 'y' }));
  assert.deepEqual([reused.status, reused.after], [422, null]);
  assert.match(reused.title, /already used/);
  await assert.rejects(idempotent(ask('broken'), () => Promise.reject(new Error('crash'))));
  const interrupted = await told(ask('broken'));
  assert.deepEqual([interrupted.status, interrupted.after], [409, null]);
  assert.match(interrupted.title, /outcome .* is unknown/);
  const other = fetchIdempotency(options);
  const passed = await other(bare.clone(), (given) => new Response(`${given}`));
  assert.equal(await passed.text(), 'undefined');
  const get = new Request('http://localhost/pay', { headers: { 'idempotency-key': 'a b' } });
  assert.equal(
    await (await idempotent(get, (given) => new Response(`${given}`))).text(),
    'undefined',
  );
});

test('a repeat has the headers of the answer but those of a connection, a moment or a session', async () => {
  const idempotent = fetchIdempotency({ locks, store: memoryStore() });
  const own = { 'x-date': 'a', 'x-connection': 'b', 'content-type': 'text/own', upgrades: 'c' };
  const not = {
    connection: 'close',
    'content-length': '4',
    date: 'now',
    'keep-alive': '5',
    'set-cookie': 'a=1',
    trailer: 'x',
    'transfer-encoding': 'chunked',
    upgrade: 'h2c',
  };
  const handle = () => new Response('text', { headers: { ...own, ...not }, statusText: 'Fine' });
  const first = await idempotent(ask('headers'), handle);
  assert.equal(await first.text(), 'text');
  const again = await idempotent(ask('headers'), () => assert.fail());
  const kept: Record<string, string> = {};
  again.headers.forEach((value, name) => {
    kept[name] = value;
  });
  assert.deepEqual(kept, { ...own, 'idempotency-replayed': 'true' });
  assert.deepEqual([again.statusText, await again.text()], ['Fine', 'text']);
  assert.equal(first.headers.get('idempotency-replayed'), null);
});
