/** `fetchIdempotency`: what its answers, errors and clients that leave do to a key. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fetchIdempotency, memoryStore } from 'holdfast/idempotency';
import { connect, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';

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
