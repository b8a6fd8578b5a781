/** The properties of the store inside the process alone: a name, and a life as long as its managers'. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { ROOT, run } from '../support/child.js';
import { closeManagers, connect } from '../support/holdfast.js';

afterEach(closeManagers);

test('memory: is a store of each manager alone', async () => {
  const [a, b] = [await connect('memory:'), await connect('memory:')];
  const locks = [await a.tryAcquire('x'), await b.tryAcquire('x')];
  for (const lock of locks) assert.equal(await lock?.release(), true);
});

test('memory:name is shared by those who name it, and by nobody else', async () => {
  const [a, b, other] = await Promise.all(
    ['memory:shop', 'memory:shop', 'memory:office'].map((target) => connect(target)),
  );
  const lock = await a?.acquire('x');
  assert.equal(await b?.tryAcquire('x'), null);
  assert.equal(await (await other?.tryAcquire('x'))?.release(), true);
  assert.equal(await lock?.release(), true);
});

test('memory:name lives as long as one of its managers is open', async () => {
  const [a, b] = [await connect('memory:shop'), await connect('memory:shop')];
  const first = await a.acquire('x');
  await a.close();
  const second = await b.acquire('x');
  assert.equal(second.fence, first.fence + 1, 'the counter of fences is still there');
  await b.close();
  const anew = await connect('memory:shop');
  const third = await anew.acquire('x');
  assert.ok(third.fence > second.fence + 1, 'a new store, whose fences are larger all the same');
});

test('memory: is named in errors, decoded as a URL is', async () => {
  const locks = await connect('memory:my%20shop');
  await locks.close();
  await assert.rejects(locks.acquire('x'), /on memory:my shop: its manager was closed/);
});

for (const target of ['memory://shop', 'memory:shop?db=1', 'memory:shop#1', 'memory:%']) {
  test(`connect: refuses ${target}`, async () => {
    await assert.rejects(connect(target), { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' });
  });
}

test('memory:name is shared with worker threads', async () => {
  const locks = await connect('memory:shop');
  const lock = await locks.acquire('x');
  const source = `
    const { parentPort } = require('node:worker_threads');
    const { connect } = require(${JSON.stringify(ROOT)});
    connect('memory:shop').then(async (locks) => {
      const seen = await locks.tryAcquire('x');
      await locks.close();
      parentPort.postMessage(seen);
    });`;
  const worker = new Worker(source, { eval: true });
  const [seen] = await Promise.all([
    new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject)),
    new Promise((resolve) => worker.once('exit', resolve)),
  ]);
  assert.equal(seen, null);
  assert.equal(await lock.release(), true);
});

test('memory: an open manager and a held lock keep no process alive; a waiter does', async () => {
  const open = `import { connect } from 'holdfast';
    const locks = await connect('memory:');
    const lock = await locks.acquire('x');`;
  assert.equal((await run(open)).code, 0);
  const waits = `${open}
    const waiting = locks.acquire('x', { wait: 100 }).catch((error) => console.log(error.code));
    await waiting;`;
  const ended = await run(waits);
  assert.deepEqual([ended.code, ended.stdout], [0, 'ERR_LOCK_TIMEOUT\n']);
});

test('fake timers, which also replace queueMicrotask, do not keep an acquire from being sent', async () => {
  const locks = await connect('memory:');
  const real = { queueMicrotask, setImmediate, setInterval, setTimeout };
  const never = () => ({}) as never;
  Object.assign(globalThis, {
    queueMicrotask: never,
    setImmediate: never,
    setInterval: never,
    setTimeout: never,
  });
  try {
    const lock = await locks.acquire('x');
    const next = locks.acquire('x');
    assert.equal(await lock.release(), true);
    assert.equal(await (await next).release(), true);
  } finally {
    Object.assign(globalThis, real);
  }
});
