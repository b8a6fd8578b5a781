/** `runCoordinator`: the tasks of node-cron in several processes. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCoordinator } from 'holdfast/node-cron';
import { ROOT } from '../../support/child.js';
import { connect, holdfast } from '../../support/holdfast.js';
import { spawnProgram } from '../../support/program.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

import cron = require('node-cron');

const server = serverOfFile();

test('a task of each second runs once in each, in one of two processes', async () => {
  const file = join(ROOT, 'build', 'test', 'adapters', 'node-cron', 'task.js');
  const programs = [0, 1].map(() => spawnProgram(file, server.url));
  try {
    await until(async () => (await server.admin.llen('ran')) >= 5, 'five runs', 40_000);
    await until(
      async () => (await server.admin.llen('skipped')) >= 3,
      'three that were skipped',
      40_000,
    );
  } finally {
    await Promise.all(programs.map(({ kill }) => kill()));
  }
  const ran = await server.admin.lrange('ran', 0, -1);
  assert.equal(new Set(ran).size, ran.length, ran.join());
  const skipped = (await server.admin.lrange('skipped', 0, -1)).map((line) => line.split(' '));
  for (const [slot = '', reason] of skipped) {
    assert.equal(reason, 'not-elected');
    assert.ok(ran.includes(slot) || slot > (ran.at(-1) ?? ''), slot);
  }
});

for (const kind of ['redis', 'memory'] as const) {
  test(`a planned time is taken once, and stays taken when its process ends: ${kind}`, async () => {
    const target = kind === 'redis' ? server.url : 'memory:node-cron';
    const [one, other] = [await connect(target), await connect(target)];
    const key = `report:${kind}:2026-11-26T09:00:00.000Z`;
    const took = await Promise.all(
      [one, other, one].map((locks) => runCoordinator(locks).shouldRun(key, 30_000)),
    );
    assert.equal(took.filter(Boolean).length, 1);
    const [held] = (await other.query({ name: key })).held;
    assert.ok((held?.ttl ?? 0) > 50_000 && (held?.ttl ?? 0) <= 60_000);
    await one.close();
    assert.equal(await runCoordinator(other).shouldRun(key, 30_000), false);
    assert.ok(await runCoordinator(other, { keep: 3_600_000 }).shouldRun(`${key} next`, 30_000));
    const [longer] = (await other.query({ name: `${key} next` })).held;
    assert.ok((longer?.ttl ?? 0) > 3_500_000);
    await other.close();
  });
}

test('without the server a task is skipped, and its logger is told', async () => {
  const locks = await connect('memory:');
  await locks.close();
  const errors: unknown[] = [];
  const logger = {
    info() {},
    warn() {},
    debug() {},
    error: (...told: unknown[]) => errors.push(...told),
  };
  const ran: Date[] = [];
  const skipped: unknown[] = [];
  const task = cron.schedule('* * * * * *', ({ date }) => ran.push(date), {
    ...{ name: 'tick', distributed: true, logger },
    runCoordinator: runCoordinator(locks),
  });
  task.on('execution:skipped', ({ reason }) => {
    skipped.push(reason);
  });
  await until(() => skipped.length > 0, 'a run that is skipped');
  await task.destroy();
  assert.deepEqual([ran.length, skipped[0]], [0, 'coordinator-error']);
  assert.ok(errors.some((error) => error instanceof holdfast.LockClosedError));
});

test('wrong options are refused', async () => {
  const locks = await connect('memory:');
  assert.throws(() => runCoordinator(locks, { keep: 5 }), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => runCoordinator(locks, { ttl: 5 } as never), { code: 'ERR_INVALID_ARG_TYPE' });
  await locks.close();
});
