/** The installed package in every runtime that it is for. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched, nodeOf } from '../support/fetched.js';
import { RedisServer } from '../support/server.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;
let server: RedisServer;
let folder: string;

before(async () => {
  server = await RedisServer.start();
  packed = await Packed.start();
  folder = await packed.installed('service');
  for (const [file, source] of Object.entries({ ...SOURCES, ...LEFT })) {
    writeFileSync(join(folder, file), source);
  }
});

after(async () => {
  await server.stop();
  await packed.stop();
});

/** Twenty callers, one at a time; and a store without a server. Ends by itself. */
const BODY = `
const locks = await connect(url);
let inside = 0;
let most = 0;
const fences = await Promise.all(Array.from({ length: 20 }, () => locks.request('packed', async (lock) => {
  most = Math.max(most, ++inside);
  await new Promise((resolve) => setTimeout(resolve, 1));
  inside--;
  return lock.fence;
})));
const lock = await locks.acquire('packed');
const refused = await locks.acquire('packed', { wait: 0 }).catch((error) => error);
const memory = await connect('memory:');
const there = await memory.tryAcquire('packed');
report([
  most === 1,
  new Set(fences).size === 20,
  refused instanceof LockTimeoutError,
  there !== null,
  await lock.release(),
].join());
await memory.close();
await locks.close();
`;
const SAYS = 'true,true,true,true,true\n';

const SOURCES = {
  'a.mjs': `import { connect, LockTimeoutError } from 'holdfast';
const url = process.argv[2];
const report = console.log;
${BODY}`,
  'b.cjs': `const { connect, LockTimeoutError } = require('holdfast');
(async () => {
const url = process.argv[2];
const report = console.log;
${BODY}
})();`,
  'worker.mjs': `import { Worker } from 'node:worker_threads';
const worker = new Worker(new URL('./thread.mjs', import.meta.url), { workerData: process.argv[2] });
worker.on('message', (said) => console.log(said));
worker.on('error', (error) => { throw error; });
`,
  'thread.mjs': `import { parentPort, workerData as url } from 'node:worker_threads';
import { connect, LockTimeoutError } from 'holdfast';
const report = (said) => parentPort.postMessage(said);
${BODY}`,
  'load.mjs': "import('holdfast').catch(({ code, message }) => console.log(code, message))",
  'service.test.mjs': `import { test } from 'node:test';
import assert from 'node:assert/strict';
import { connect } from 'holdfast';
test('a service', async () => {
  const locks = await connect('memory:');
  assert.equal(await locks.request('a', (lock) => lock.held), true);
  await locks.close();
});
`,
};

const runs = (program: string, ...args: string[]) => succeeds(program, args, folder);

for (const major of [20, 22, 24, 26]) {
  test(`Node ${major}: by import, by require, in a worker thread, and in its test runner`, async () => {
    const node = await nodeOf(major);
    for (const file of ['a.mjs', 'b.cjs', 'worker.mjs']) {
      assert.equal(await runs(node, file, server.url), SAYS, file);
    }
    const said = await runs(node, '--test', '--test-reporter=tap', 'service.test.mjs');
    assert.match(said, /^# pass 1$/m);
  });
}

test('Bun: by import, by require and in a worker thread', async () => {
  const bun = await fetched('bun@1', 'bin/bun');
  for (const file of ['a.mjs', 'b.cjs', 'worker.mjs']) {
    assert.equal(await runs(bun, file, server.url), SAYS, file);
  }
});

test('Deno: by import, by require and in a worker thread', async () => {
  const deno = await fetched('deno@2', 'deno');
  for (const file of ['a.mjs', 'b.cjs', 'worker.mjs']) {
    assert.equal(await runs(deno, 'run', '--allow-all', file, server.url), SAYS, file);
  }
});

/** A lock is left by a thread or a process that ends in one way or another. */
const LEFT = {
  'left.mjs': `import { connect } from 'holdfast';
const [, , url, how] = process.argv;
const locks = await connect(url);
await locks.acquire('left', { ttl: 60_000 });
if (how === 'process.exit') process.exit(3);
if (how === 'Deno.exit') Deno.exit(3);
if (how === 'an unhandled rejection') Promise.reject(new Error('mine'));
if (how === 'an uncaught error') setTimeout(() => { throw new Error('mine'); });
`,
  'left-by-worker.mjs': `import { Worker } from 'node:worker_threads';
import { connect } from 'holdfast';
const [, , url, how] = process.argv;
const worker = new Worker(new URL('./leaving.mjs', import.meta.url), { workerData: { url, how } });
worker.on('error', () => {});
await new Promise((resolve) => worker.once('message', resolve));
if (how === 'terminate') await worker.terminate();
const locks = await connect(url);
console.log(await (await locks.acquire('left', { wait: 20_000 })).release());
await locks.close();
`,
  'leaving.mjs': `import { parentPort, workerData } from 'node:worker_threads';
import { connect } from 'holdfast';
const locks = await connect(workerData.url);
await locks.acquire('left', { ttl: 60_000 });
parentPort.postMessage('held');
setInterval(() => {}, 1_000);
if (workerData.how === 'an uncaught error') setTimeout(() => { throw new Error('mine'); });
`,
};

test('Deno: a process gives its locks back however it ends', async () => {
  const deno = await fetched('deno@2', 'deno');
  for (const how of [
    'its natural end',
    'process.exit',
    'Deno.exit',
    'an unhandled rejection',
    'an uncaught error',
  ]) {
    const args = ['run', '--allow-all', 'left.mjs', server.url, how];
    const ended = runs(deno, ...args);
    if (how === 'its natural end') await ended;
    else await assert.rejects(ended, how);
    assert.equal(await server.admin.exists('lock:left'), 0, how);
  }
});

test('Deno: a worker gives its locks back however it ends', async () => {
  const deno = await fetched('deno@2', 'deno');
  for (const how of ['terminate', 'an uncaught error']) {
    const args = ['run', '--allow-all', 'left-by-worker.mjs', server.url, how];
    assert.equal(await runs(deno, ...args), 'true\n', how);
  }
});

test('Deno: with the permissions that it needs, and without them it says which', async () => {
  const deno = await fetched('deno@2', 'deno');
  const needed = ['--allow-ffi', '--allow-read', '--allow-env'];
  assert.equal(await runs(deno, 'run', '--no-prompt', ...needed, 'a.mjs', server.url), SAYS);
  const said = await runs(deno, 'run', '--no-prompt', '--allow-read', 'load.mjs');
  assert.match(said, /^ERR_LOCK_NATIVE_LOAD .*--allow-ffi, --allow-read and --allow-env/);
});
