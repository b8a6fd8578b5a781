/** Worker threads, several copies of the package and several managers in one process. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run } from '../../support/child.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();

const WORKER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { connect } = require('holdfast');
  connect(workerData.url).then(async (locks) => {
    const lock = await locks.acquire('worker:' + workerData.id, { ttl: 60_000 });
    parentPort.postMessage(lock.token);
    for (let i = 0; ; i++) {
      const taken = await locks.tryAcquire('worker:busy:' + (i % 3));
      await taken?.release();
    }
  });
`;

const START = `
  import { Worker } from 'node:worker_threads';
  const [url, rounds] = process.argv.slice(1);
  const source = ${JSON.stringify(WORKER)};
  const start = (id) => new Worker(source, { eval: true, execArgv: [], workerData: { url, id } });
  const hears = (worker) => new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
`;

test('workers terminated with operations in flight do not crash, 60 times over', async () => {
  const ended = await run(
    `${START}
    import { connect } from 'holdfast';
    for (let round = 0; round < Number(rounds); round++) {
      const workers = [0, 1, 2].map((id) => start(round * 3 + id));
      if (round % 2 === 0) await Promise.all(workers.map(hears));
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
    // No lock is released any more once the process ends.
    const locks = await connect(url);
    for (let id = 0; id < Number(rounds) * 3; id++) {
      const lock = await locks.acquire('worker:' + id, { wait: 20_000 });
      await lock.release();
    }
    await locks.close();
    console.log('done');`,
    server.url,
    '20',
  );
  assert.deepEqual(
    { code: ended.code, signal: ended.signal },
    { code: 0, signal: null },
    ended.stderr,
  );
  assert.equal(ended.stdout, 'done\n');
});

test('32 workers that come and go for a minute leave nothing behind', async () => {
  const ended = await run(
    `${START}
    import { readdirSync } from 'node:fs';
    import { connect } from 'holdfast';
    const linux = process.platform === 'linux';
    const open = () => (linux ? [...readdirSync('/proc/self/fd'), ...readdirSync('/proc/self/task')].length : 0);
    let id = 0;
    const one = async (end) => {
      while (performance.now() < end) {
        const worker = start(id++);
        // It ends while it starts, while it connects, or in the middle of its work.
        await new Promise((resolve) => setTimeout(resolve, Math.random() ** 2 * 3_000));
        await worker.terminate();
      }
    };
    const all = (end) => Promise.all(Array.from({ length: 32 }, () => one(end)));
    const locks = await connect(url);
    await all(performance.now() + 1);
    const before = open();
    await all(performance.now() + 60_000);
    // The server has released what they held, and sockets close after their threads.
    const lock = await locks.acquire('worker:' + (id - 1), { wait: 20_000 });
    await lock.release();
    for (let i = 0; i < 500 && open() > before; i++) await new Promise((resolve) => setTimeout(resolve, 20));
    console.log(open() <= before ? 'clean' : open() + ' open, ' + before + ' before');
    await locks.close();`,
    server.url,
  );
  const { code, signal, stdout, stderr } = ended;
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, stderr);
  assert.equal(stdout, 'clean\n');
  const clients = async () =>
    String(await server.admin.call('CLIENT', 'LIST')).split('\n').length - 1;
  await until(async () => (await clients()) <= 1, 'the end of all connections');
});

test('a terminated worker gives its locks back at once', async () => {
  const ended = await run(
    `${START}
    import { connect } from 'holdfast';
    const worker = start('gone');
    await hears(worker);
    await worker.terminate();
    const locks = await connect(url);
    const lock = await locks.acquire('worker:gone', { wait: 20_000 });
    console.log(await lock.release());
    await locks.close();`,
    server.url,
  );
  assert.equal(ended.stdout, 'true\n', ended.stderr);
  const left = async () => (await server.admin.keys('lock:worker:*')).length;
  await until(async () => (await left()) === 0, 'every lock of every worker to be released');
});

test('managers in the main thread and in workers exclude each other', async () => {
  const ended = await run(
    `${START}
    import { connect } from 'holdfast';
    const worker = start('common');
    const token = await hears(worker);
    const locks = await connect(url);
    console.log(await locks.tryAcquire('worker:common'), token.startsWith('hf1.'));
    await worker.terminate();
    await locks.close();`,
    server.url,
  );
  assert.equal(ended.stdout, 'null true\n', ended.stderr);
});

test('a second copy of the package in one thread works beside the first', async () => {
  const ended = await run(
    `import { createRequire } from 'node:module';
    const require = createRequire(process.cwd() + '/');
    const [url] = process.argv.slice(1);
    const first = require('holdfast');
    for (const file of Object.keys(require.cache)) delete require.cache[file];
    const second = require('holdfast');
    const a = await first.connect(url);
    const b = await second.connect(url);
    const lock = await a.acquire('copies');
    console.log(first.LockError === second.LockError, await b.tryAcquire('copies'));
    await lock.release();
    const theirs = await b.acquire('copies');
    console.log(await theirs.release());
    await Promise.all([a.close(), b.close()]);`,
    server.url,
  );
  assert.equal(ended.stdout, 'false null\ntrue\n', ended.stderr);
});
