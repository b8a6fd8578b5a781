/** Environments that end in the middle of anything: worker threads are terminated, processes exit. */

import assert from 'node:assert/strict';
import { createServer, type Server, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { run } from '../../support/child.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

let server: RedisServer;
/** Accepts connections and never answers. */
let silent: Server;
let silentUrl: string;
const visitors = new Set<Socket>();

before(async () => {
  server = await RedisServer.start();
  silent = createServer((socket) => {
    visitors.add(socket.on('error', () => {}));
  });
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  silentUrl = `redis://127.0.0.1:${(silent.address() as { port: number }).port}`;
});

after(async () => {
  for (const socket of visitors) socket.destroy();
  await new Promise((resolve) => silent.close(resolve));
  await server.stop();
});

/** Programs that get `connect`, `url`, `silent` and `name`, and call `ready` when they are at work. */
const STATES: Readonly<Record<string, string>> = {
  connecting: `connect(silent).catch(() => {}); ready();`,
  waiting: `
    const locks = await connect(url);
    await locks.acquire(name, { ttl: 1_000 });
    for (let i = 0; i < 20; i++) locks.acquire(name, { wait: Infinity }).catch(() => {});
    ready();`,
  holding: `
    const locks = await connect(url);
    await locks.acquire(name, { ttl: 1_000 });
    await locks.acquire([name + ':x', name + ':y'], { ttl: 1_000 });
    ready();`,
  extending: `
    const locks = await connect(url);
    const lock = await locks.acquire(name, { ttl: 1_000 });
    lock.extend().catch(() => {});
    ready();`,
  releasing: `
    const locks = await connect(url);
    const lock = await locks.acquire(name, { ttl: 1_000 });
    lock.release().catch(() => {});
    ready();`,
  closing: `
    const locks = await connect(url);
    await locks.acquire(name, { ttl: 1_000 });
    locks.close().catch(() => {});
    ready();`,
  'in a callback': `
    const locks = await connect(url);
    locks.request(name, { ttl: 1_000 }, () => new Promise(ready)).catch(() => {});`,
  asking: `
    const locks = await connect(url);
    locks.query().catch(() => {});
    locks.acquire(name, { ttl: 1_000 }).catch(() => {});
    ready();`,
};

const WORKERS = `
  import { Worker } from 'node:worker_threads';
  import { connect } from 'holdfast';
  const [url, silent, target, body] = process.argv.slice(1);
  const source = (name) => \`
    const { parentPort } = require('node:worker_threads');
    const { connect } = require('holdfast');
    const [url, silent, name] = \${JSON.stringify([target, silent, name])};
    const ready = () => parentPort.postMessage('ready');
    (async () => { \${body} })();\`;
  const names = Array.from({ length: 8 }, (_, i) => 'teardown:' + i);
  await Promise.all(names.map(async (name, i) => {
    const worker = new Worker(source(name), { eval: true, execArgv: [] });
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    // Every other one gets a turn to go on first.
    if (i % 2 === 1) await new Promise((resolve) => setImmediate(resolve));
    await worker.terminate();
  }));
  const locks = await connect(url);
  for (const name of names) {
    const lock = await locks.acquire(name, { wait: 20_000 });
    await lock.release();
  }
  await locks.close();
  console.log('done');
`;

for (const [state, body] of Object.entries(STATES)) {
  for (const kind of ['Redis', 'memory:']) {
    test(`${kind}: workers are terminated while ${state}`, async () => {
      const target = kind === 'Redis' ? server.url : 'memory:teardown';
      const ended = await run(WORKERS, server.url, silentUrl, target, body);
      assert.deepEqual([ended.code, ended.signal], [0, null], ended.stderr);
      assert.equal(ended.stdout, 'done\n');
    });
  }

  test(`a process exits while ${state}`, async () => {
    const name = `exit while ${state}`;
    const source = `
      import { connect } from 'holdfast';
      const [url, silent, name] = process.argv.slice(1);
      const ready = () => process.exit(7);
      ${body}`;
    const ended = await run(source, server.url, silentUrl, name);
    assert.deepEqual([ended.code, ended.signal], [7, null], ended.stderr);
    const left = async () => (await server.admin.exists(`lock:${name}`)) === 0;
    await until(left, 'the lease to end');
  });
}
