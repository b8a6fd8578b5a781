/** Whose key a key is: the option `scope`, and the requests whose caller is not known without it. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fetchIdempotency, type IdempotencyOptions, memoryStore } from 'holdfast/idempotency';
import { connect, type LockManager } from '../../support/holdfast.js';

let locks: LockManager;

before(async () => {
  locks = await connect('memory:');
});

after(() => locks.close());

/** A service that tells how many payments it has made. */
function service(scope?: IdempotencyOptions['scope']) {
  const more = scope === undefined ? {} : { scope };
  const idempotent = fetchIdempotency({ locks, store: memoryStore(), ...more });
  let payments = 0;
  const pay = async (headers: Record<string, string>, caller?: string) => {
    const all = { 'idempotency-key': 'order-1', ...headers };
    const request = new Request('http://localhost/', { method: 'POST', headers: all, body: '5' });
    const handle = () => new Response(`${++payments}`);
    return (await idempotent(request, handle, caller)).text();
  };
  return { pay, payments: () => payments };
}

test('without a scope, requests without credentials share one, and a password is its own', async () => {
  const { pay } = service();
  assert.deepEqual([await pay({}), await pay({})], ['1', '1']);
  const as = (name: string) => pay({ authorization: `Basic ${name}` });
  assert.deepEqual([await as('a'), await as('b'), await as('a')], ['2', '3', '2']);
});

test('without a scope, a request whose credentials may differ at its repeat is refused with advice, and runs nothing', async () => {
  const { pay, payments } = service();
  const secret = 'abc.def';
  for (const headers of [
    { cookie: `session=${secret}` },
    { authorization: `Bearer ${secret}` },
    { authorization: `AWS4-HMAC-SHA256 ${secret}` },
    { authorization: 'Basic a', cookie: `session=${secret}` },
    { 'x-api-key': secret },
    { 'x-auth-token': secret },
  ]) {
    await assert.rejects(pay(headers as Record<string, string>), (error: Error) => {
      const { code, message } = error as NodeJS.ErrnoException;
      assert.equal(code, 'ERR_INVALID_ARG_VALUE');
      assert.match(message, /"scope", as in scope: \(request\) => request\.user\.id/);
      for (const name of Object.keys(headers)) assert.ok(message.includes(name), message);
      assert.ok(!message.includes(secret), 'a credential in an error');
      return true;
    });
  }
  assert.equal(payments(), 0);
});

test('a scope tells callers apart, whatever their credentials', async () => {
  const { pay } = service(({ headers }) => String(headers['x-user']));
  const as = (user: string, token: string) => pay({ 'x-user': user, authorization: token });
  assert.deepEqual([await as('ann', 'Bearer 1'), await as('ann', 'Bearer 2')], ['1', '1']);
  assert.equal(await as('bob', 'Bearer 1'), '2');
  assert.equal(await pay({ cookie: 'a=1' }, 'ann'), '1', 'the caller that a call names');
  assert.equal(await pay({ cookie: 'a=1' }, 'carol'), '3');
});

test('the public scope is that of all callers', async () => {
  const { pay } = service('public');
  assert.deepEqual([await pay({ cookie: 'a=1' }), await pay({ authorization: 'b' })], ['1', '1']);
});

test('no two pairs of a caller and a key are one', async () => {
  const { pay } = service(({ headers }) => String(headers['x-user']));
  const pairs = [
    ['a', 'b:c'],
    ['a:b', 'c'],
    ['a","b', 'c'],
    ['a', 'b","c'],
  ] as const;
  const paid = pairs.map(([user, key]) => {
    const header = `"${key.replaceAll('"', '\\"')}"`;
    return pay({ 'x-user': user, 'idempotency-key': header });
  });
  assert.equal(new Set(await Promise.all(paid)).size, pairs.length);
});

test('a scope that names nobody is an error', async () => {
  for (const [wrong, message] of [
    ['', /must name a caller, got ""; 'public' is the name for all/],
    [undefined, /what "scope" returns must be a string, got undefined/],
    [Promise.resolve('a'), /must be a string, got an object/],
  ] as const) {
    const { pay, payments } = service((() => wrong) as never);
    await assert.rejects(pay({}), message);
    assert.equal(payments(), 0);
  }
});
