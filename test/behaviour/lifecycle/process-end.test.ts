/** However a process ends, its threads' locks are free by then; and no thread pays for the end of another. */

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Ended, run } from '../../support/child.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();

/**
 * Programs with a worker; `hold` takes the lock of a thread for a minute, and `worker` is up when `ready` has its
 * message. `inWorker` is what the worker does after that.
 */
const PROGRAM = `
  import { Worker } from 'node:worker_threads';
  import { connect } from 'holdfast';
  const [url, holders, inWorker] = process.argv.slice(1);
  const start = (name, then = inWorker) => {
    const source = \`
      const { parentPort, workerData } = require('node:worker_threads');
      const { connect } = require('holdfast');
      const { url, name } = workerData;
      (async () => {
        const locks = await connect(url);
        const lock = name === '' ? undefined : await locks.acquire(name, { ttl: 60_000 });
        parentPort.postMessage('up');
        \${then}
      })();\`;
    const worker = new Worker(source, { eval: true, execArgv: [], workerData: { url, name } });
    return [worker, new Promise((resolve) => worker.once('message', resolve))];
  };
  const hold = async (name) => (await connect(url)).acquire(name, { ttl: 60_000 });
  const [worker, ready] = start(holders.includes('worker') ? 'end:worker' : '');
  worker.on('error', () => {});
  if (holders.includes('main')) await hold('end:main');
  await ready;
`;

const GOES_ON = 'setInterval(() => {}, 1_000);';

/** What the main thread does, what the worker does, and the exit code. */
const ENDS: Readonly<Record<string, readonly [main: string, inWorker: string, code: number]>> = {
  'process.exit': ['process.exit(3);', GOES_ON, 3],
  'an uncaught error': ["setImmediate(() => { throw new Error('mine'); });", GOES_ON, 1],
  'a rejection that nobody handles': ["Promise.reject(new Error('mine'));", GOES_ON, 1],
  'SIGTERM, which a listener turns into process.exit': [
    "process.once('SIGTERM', () => process.exit(4)); process.kill(process.pid, 'SIGTERM');",
    GOES_ON,
    4,
  ],
  'its natural end, with a worker that may be left': ['worker.unref();', GOES_ON, 0],
  'its natural end, after the worker was terminated': ['await worker.terminate();', GOES_ON, 0],
  'process.exit, right after the worker was terminated': [
    'await worker.terminate(); process.exit(3);',
    GOES_ON,
    3,
  ],
  'process.exit, while the worker is terminated': [
    'worker.terminate(); process.exit(3);',
    GOES_ON,
    3,
  ],
  'the end of all threads': ['', '', 0],
  'process.exit in the worker': ['', 'process.exit(5);', 0],
  'an uncaught error in the worker': ['', "setImmediate(() => { throw new Error('mine'); });", 0],
};

function endedWell({ code, signal, stderr }: Ended, wanted: number): void {
  assert.deepEqual({ code, signal }, { code: wanted, signal: null }, stderr);
}

for (const holders of ['worker', 'main', 'main and worker']) {
  describe(`locks of ${holders} are free when the process ends by`, () => {
    for (const [how, [main, inWorker, code]] of Object.entries(ENDS)) {
      test(how, async () => {
        // The first release needs two requests then.
        await server.admin.script('FLUSH');
        endedWell(await run(PROGRAM + main, server.url, holders, inWorker), code);
        assert.deepEqual(await server.admin.keys('lock:end:*'), []);
      });
    }
  });
}

test('a server that does not answer holds up the end of a process with workers for a moment', async () => {
  const ended = await run(
    `${PROGRAM}
    process.kill(Number(process.argv[4]), 'SIGSTOP');
    process.exit(3);`,
    server.url,
    'main and worker',
    GOES_ON,
    String(server.pid),
  ).finally(() => process.kill(server.pid, 'SIGCONT'));
  // Without a limit the test would hang.
  endedWell(ended, 3);
  await until(async () => (await server.admin.keys('lock:end:*')).length === 0, 'the releases');
});

test('a worker that ends waits for no server while the process goes on', async () => {
  const ended = await run(
    `${PROGRAM}
    const workers = Array.from({ length: 20 }, (_, i) => start('end:' + i, ${JSON.stringify(GOES_ON)}));
    for (const [, up] of workers) await up;
    process.kill(Number(process.argv[4]), 'SIGSTOP');
    const begun = performance.now();
    await Promise.all(workers.map(([each]) => each.terminate()));
    const all = performance.now() - begun;
    process.kill(Number(process.argv[4]), 'SIGCONT');
    console.log(all);
    // The keeper releases what they held.
    const locks = await connect(url);
    for (let i = 0; i < 20; i++) await (await locks.acquire('end:' + i, { wait: 20_000 })).release();
    process.exit();`,
    server.url,
    '',
    GOES_ON,
    String(server.pid),
  ).finally(() => process.kill(server.pid, 'SIGCONT'));
  endedWell(ended, 0);
  assert.ok(Number(ended.stdout) < 2_000, `${ended.stdout} ms`);
});

test('the end of a worker ends no manager of another thread', async () => {
  const ended = await run(
    `${PROGRAM}
    const ours = await hold('end:ours');
    const [other, up] = start('end:other', \`
      parentPort.once('message', async () => {
        const held = lock.held;
        parentPort.postMessage([held, await lock.extend(), await lock.release()]);
        await locks.close();
      });
      parentPort.ref();\`);
    await up;
    await worker.terminate();
    const answer = new Promise((resolve) => other.once('message', resolve));
    other.postMessage('go on');
    console.log(JSON.stringify([await answer, ours.held, await ours.release()]));
    process.exit();`,
    server.url,
    'worker',
    GOES_ON,
  );
  endedWell(ended, 0);
  const [[held, extended, released], ours, ...rest] = JSON.parse(ended.stdout);
  assert.deepEqual([held, released, ours, ...rest], [true, true, true, true]);
  assert.notEqual(extended, false);
});
