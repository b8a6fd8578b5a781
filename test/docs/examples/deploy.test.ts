/** A deploy of workers: each file is imported once and whole, and none waits for a lease. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

const server = serverOfFile();

/** A worker whose lease is so long that only a release can free the lock while a test lasts. */
async function start(env: Readonly<Record<string, string>> = {}): Promise<Program> {
  const fixed = { REDIS_URL: server.url, LOCK_TTL_MS: '600000' };
  const worker = new Program('deploy/worker.mjs', { ...fixed, ...env });
  await worker.says(/^ready$/);
  return worker;
}

async function ends(worker: Program): Promise<void> {
  assert.equal(await worker.ended(), 0, worker.lines.join('\n'));
  assert.equal(worker.lines.at(-1), 'ended');
}

test('while workers are replaced one by one, each file is imported once, in order', async () => {
  const files: string[] = [];
  let workers: Program[] = await Promise.all([start(), start(), start()]);
  for (const old of workers) {
    const done = files.length;
    files.push(...Array.from({ length: 10 }, (_, i) => `orders-${done + i}:10`));
    await server.admin.rpush('files', ...files.slice(done));
    workers = [...workers.slice(1), await start()];
    await until(async () => (await server.admin.llen('imported')) > done, 'a file');
    old.kill('SIGTERM');
    await ends(old);
    assert.ok(!old.lines.some((line) => line.startsWith('again')), old.lines.join('\n'));
  }
  await until(async () => (await server.admin.llen('files')) === 0, 'the last file');
  assert.deepEqual(await server.admin.lrange('imported', 0, -1), files);
  for (const worker of workers) worker.kill('SIGTERM');
  await Promise.all(workers.map(ends));
  assert.equal(await server.admin.exists('lock:imports'), 0);
});

test('a file that takes longer than the grace is left to the next worker, under a greater fence', async () => {
  await server.admin.del('imported');
  await server.admin.rpush('files', 'big:1000000');
  const old = await start({ GRACE_MS: '100' });
  await old.says(/^begin big/);
  const next = await start({ GRACE_MS: '100' });
  old.kill('SIGTERM');
  await ends(old);
  await next.says(/^begin big/);
  const fenceOf = ({ lines }: Program) =>
    Number(lines.find((line) => line.startsWith('begin'))?.split(' ')[2]);
  assert.ok(fenceOf(next) > fenceOf(old));
  next.kill('SIGTERM');
  await ends(next);
  assert.deepEqual(await server.admin.lrange('files', 0, -1), ['big:1000000']);
  assert.equal(await server.admin.exists('imported'), 0);
});
