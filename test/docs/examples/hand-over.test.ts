/** A process takes a lock and hands it to a worker by a queue: the lock is never free meanwhile. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
});

const start = (file: string, ...args: string[]) =>
  new Program(`hand-over/${file}`, { REDIS_URL: server.url }, ...args);

test('the lock goes to the worker with its fence, and is never free on the way', async () => {
  const web = start('web.mjs', '9');
  await until(async () => (await server.admin.llen('jobs')) === 1, 'the job to be in the queue');
  assert.equal(await locks.tryAcquire('video:9'), null);
  const second = start('web.mjs', '9');
  assert.equal(await second.ended(), 0);
  assert.deepEqual(second.lines, ['somebody is at it']);

  // Who waits in the queue gets it after the worker, so with the next fence.
  const waiting = locks.acquire('video:9', { wait: 60_000 });
  const worker = start('worker.mjs');
  await worker.says(/^9 done$/);
  const lock = await waiting;
  assert.equal(await web.ended(), 0, web.lines.join('\n'));
  const given = Number(/^adopted (\d+)$/.exec(web.lines[0] ?? '')?.[1]);
  const fence = Number(/^9 begun under (\d+)$/.exec(worker.lines[0] ?? '')?.[1]);
  assert.equal(worker.lines[1], '9 done');
  assert.ok(given < fence && fence < lock.fence, `${given}, ${fence}, ${lock.fence}`);
  assert.equal(await server.admin.hget('video:9', 'fence'), String(fence));
  await lock.release();

  worker.kill('SIGTERM');
  assert.equal(await worker.ended(), 0, worker.lines.join('\n'));
});

test('a job whose lock was lost on the way is left alone', async () => {
  const web = start('web.mjs', '10');
  await until(async () => (await server.admin.llen('jobs')) === 1, 'the job to be in the queue');
  assert.equal(await locks.forceRelease('video:10'), true);
  assert.equal(await web.ended(), 0);
  assert.match(web.lines[0] ?? '', /^stolen \d+$/);
  const worker = start('worker.mjs');
  await worker.says(/^10 too late$/);
  assert.equal(await server.admin.exists('video:10'), 0);
  worker.kill('SIGTERM');
  await worker.ended();
});
