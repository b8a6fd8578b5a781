/** A function that is frozen between its calls, as AWS Lambda does it: SIGSTOP and SIGCONT on a process of its own. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const EXAMPLE = join('examples', 'lambda', 'handler.mjs');
/** Hands each message to the handler, as a runtime of functions does. */
const RUNTIME = `import { handler } from './${EXAMPLE}';
process.on('message', async (event) => process.send(await handler(event)));`;
/** The mistake: the lock is kept over the answer, and asked about in the next call. */
const CARELESS = `import { connect } from 'holdfast';
const locks = await connect(process.env.REDIS_URL);
let lock;
process.on('message', async () => {
  if (lock === undefined) {
    lock = await locks.acquire('careless', { ttl: 500 });
    return process.send('acquired');
  }
  const { held } = lock;
  if (!lock.signal.aborted) await new Promise((told) => lock.signal.addEventListener('abort', told, { once: true }));
  process.send({ held, reason: lock.signal.reason.code });
});`;

let server: RedisServer;
let others: LockManager;
let child: ChildProcess;

before(async () => {
  server = await RedisServer.start();
  others = await connect(server.url);
});

afterEach(() => child.kill('SIGKILL'));

after(async () => {
  await others.close();
  await server.stop();
});

function start(source: string): void {
  child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    cwd: ROOT,
    env: { ...process.env, REDIS_URL: server.url },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

async function call(event: object): Promise<unknown> {
  const answer = once(child, 'message');
  child.send(event);
  return (await answer)[0];
}

/** Stops the whole process, and waits until it has stopped. */
async function freeze(): Promise<void> {
  child.kill('SIGSTOP');
  const stopped = () => / T /.test(readFileSync(`/proc/${child.pid}/stat`, 'utf8'));
  await until(stopped, 'the process to stop');
}

test('the function of the example holds nothing while it is frozen, and works after the thaw', async () => {
  start(RUNTIME);
  const first = (await call({ order: 7 })) as { fence: number };
  await freeze();
  assert.equal(await server.admin.exists('lock:order:7'), 0);
  const meanwhile = await others.request('order:7', { wait: 0 }, ({ fence }) => fence);
  assert.ok(meanwhile > first.fence);
  // A long freeze costs the connections too.
  for (const type of ['normal', 'pubsub'] as const) {
    await server.admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
  }
  child.kill('SIGCONT');
  const second = (await call({ order: 7 })) as { fence: number };
  assert.ok(second.fence > meanwhile);
});

test('a lock that is held over a freeze is lost: held says so at once, and the signal follows', async () => {
  start(CARELESS);
  assert.equal(await call({}), 'acquired');
  await freeze();
  const next = await others.acquire('careless', { wait: 20_000 });
  child.kill('SIGCONT');
  assert.deepEqual(await call({}), { held: false, reason: 'ERR_LOCK_LOST' });
  assert.equal(await next.release(), true);
});
