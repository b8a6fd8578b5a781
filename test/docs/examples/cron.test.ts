/** One job on many machines: it runs once. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

const MACHINES = 6;

let server: RedisServer;
let folder: string;

before(async () => {
  server = await RedisServer.start();
  folder = mkdtempSync(join(tmpdir(), 'holdfast-cron-'));
});

after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function start(journal: string, env: Readonly<Record<string, string>> = {}): Program {
  const where = { REDIS_URL: server.url, JOURNAL: join(folder, journal) };
  return new Program('cron/settle.mjs', { ...where, ...env });
}

function journalOf(name: string): string[] {
  return readFileSync(join(folder, name), 'utf8').trim().split('\n');
}

test('of many machines that start it, one runs it, and none that comes later', async () => {
  // Longer than this test lasts: however late a process starts, the lock is kept.
  const machines = Array.from({ length: MACHINES }, () => start('once', { AT_LEAST_MS: '600000' }));
  await until(() => machines.filter(({ alive }) => alive).length === 1, 'all but one to end');
  const late = start('once');
  assert.equal(await late.ended(), 0, late.lines.join('\n'));

  const idle = [...machines.filter(({ alive }) => !alive), late];
  for (const machine of idle) assert.deepEqual(machine.lines, ['another machine does it']);
  assert.equal(journalOf('once').length, 1);

  for (const machine of machines) machine.kill('SIGKILL');
  await Promise.all(machines.map((machine) => machine.ended()));
  await server.admin.flushall();
});

test('the next time it runs again, under a greater fence', async () => {
  for (const _time of [1, 2]) {
    const machine = start('again', { AT_LEAST_MS: '0' });
    assert.equal(await machine.ended(), 0, machine.lines.join('\n'));
    assert.deepEqual(machine.lines, ['done']);
  }
  const [first = 0, second = 0] = journalOf('again').map((line) => Number(/\d+/.exec(line)?.[0]));
  assert.ok(second > first);
});

test('a job that fails says so, and leaves the lock to the next machine', async () => {
  const failing = start('failed', { FAIL: 'yes', AT_LEAST_MS: '600000' });
  assert.equal(await failing.ended(), 1);
  const next = start('failed', { AT_LEAST_MS: '0' });
  assert.equal(await next.ended(), 0);
  assert.deepEqual(next.lines, ['done']);
});
