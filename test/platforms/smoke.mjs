// What every platform must do, in one program: `node smoke.mjs <url> <url with TLS> <file with the CA>`. It is run in a
// folder into which the package has been installed, and says what it has tried.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';

const require = createRequire(join(process.cwd(), 'smoke.cjs'));
const [url, secure, ca] = process.argv.slice(2);

// Only this thread has loaded the addon, and Node lets go of it when the thread ends. The addon's own thread goes on.
await fenceOfThread();
console.log('a worker thread alone');
const { connect, LockTimeoutError } = require('holdfast');

const TRIALS = {
  'connect, acquire, release': async (locks) => {
    const lock = await locks.acquire('item');
    assert.ok(lock.held && lock.fence > 0n);
    assert.equal(await lock.release(), true);
  },
  'refuse and wait': async (locks, others) => {
    const lock = await locks.acquire('item');
    await assert.rejects(others.acquire('item', { wait: 0 }), LockTimeoutError);
    const waiting = others.acquire('item');
    assert.equal(await lock.release(), true);
    const next = await waiting;
    assert.ok(next.fence > lock.fence);
    assert.equal(await next.release(), true);
  },
  'hand off to the callers of this process, one at a time': async (locks) => {
    let inside = 0;
    const fences = await Promise.all(
      Array.from({ length: 20 }, () =>
        locks.request('queue', async (lock) => {
          assert.equal(++inside, 1);
          await new Promise((resolve) => setTimeout(resolve, 1));
          inside--;
          return lock.fence;
        }),
      ),
    );
    assert.equal(new Set(fences).size, 20);
  },
  'renew while the event loop is blocked': async (locks, others) => {
    const lock = await locks.acquire('blocked', { ttl: 2000, stallTimeout: 60_000 });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5000);
    assert.equal(lock.held, true);
    assert.equal(await others.tryAcquire('blocked'), null);
    assert.equal(await lock.release(), true);
  },
  'worker threads': async () => {
    const fences = await Promise.all(Array.from({ length: 3 }, fenceOfThread));
    assert.equal(new Set(fences).size, 3);
  },
  'the store of this process': async () => {
    const locks = await connect('memory:');
    assert.equal(await locks.request('item', (lock) => lock.held), true);
    await locks.close();
  },
  TLS: async () => {
    const locks = await connect(secure, { tls: { ca: readFileSync(ca, 'utf8') } });
    assert.equal(await locks.request('item', (lock) => lock.held), true);
    await locks.close();
  },
};

const [locks, others] = await Promise.all([connect(url), connect(url)]);
for (const [what, trial] of Object.entries(TRIALS)) {
  await trial(locks, others);
  console.log(what);
}
await Promise.all([locks.close(), others.close()]);
console.log(process.platform, process.arch, 'closed');

/** The fence of a lock that a thread takes, which has ended then. */
async function fenceOfThread() {
  const source = `const { parentPort, workerData } = require('node:worker_threads');
    const { connect } = require(workerData.main);
    connect(workerData.url).then(async (locks) => {
      const fence = await locks.request('thread', (lock) => lock.fence);
      await locks.close();
      parentPort.postMessage(fence);
    });`;
  const workerData = { main: require.resolve('holdfast'), url };
  const thread = new Worker(source, { eval: true, workerData });
  const fence = await new Promise((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
  });
  await thread.terminate();
  return fence;
}
