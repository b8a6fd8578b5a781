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
