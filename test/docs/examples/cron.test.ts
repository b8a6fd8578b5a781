/** One job on many machines: it runs once. */

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { removeFolder } from '../../support/folders.js';
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
  removeFolder(folder);
});

function start(journal: string, env: Readonly<Record<string, string>> = {}): Program {
  const where = { REDIS_URL: server.url, JOURNAL: join(folder, journal) };
  return new Program('cron/settle.mjs', { ...where, ...env });
}

function journalOf(name: string): string[] {
  return readFileSync(join(folder, name), 'utf8').trim().split('\n');
}

/** A planned time that is months away, so that none passes while a test runs. */
const YEARLY = '0 0 1 1 *';

test('of many machines that start it, one runs it, and none that comes later', async () => {
  const machines = Array.from({ length: MACHINES }, () => start('once', { CRON: YEARLY }));
  for (const machine of machines) assert.equal(await machine.ended(), 0, machine.lines.join('\n'));
  const late = start('once', { CRON: YEARLY });
  assert.equal(await late.ended(), 0, late.lines.join('\n'));

  const slot = /20\d\d-12-31T23:00:00.000Z/;
  const said = [...machines, late].flatMap(({ lines }) => lines);
  assert.equal(said.length, MACHINES + 1);
  assert.equal(said.filter((line) => line.startsWith('done: ')).length, 1);
  assert.ok(
    said.every((line) => slot.test(line)),
    said.join(),
  );
  assert.match(late.lines.join(), /^another machine has done it/);
  assert.equal(journalOf('once').length, 1);
  await server.admin.flushall();
});

test('the next time it runs again, under a greater fence, and catches up', async () => {
  const first = start('again', { CRON: '* * * * * *' });
  assert.equal(await first.ended(), 0, first.lines.join('\n'));
  const [done = ''] = first.lines;
  const planned = Date.parse(done.slice('done: '.length));
  await until(() => Date.now() > planned + 3_000, 'some planned times to pass');
  const second = start('again', { CRON: '* * * * * *' });
  assert.equal(await second.ended(), 0, second.lines.join('\n'));

  const settled = journalOf('again').map((line) => {
    const [, slot = '', fence] = /^settled (\S+) under (\d+)$/.exec(line) ?? [];
    return { time: Date.parse(slot), fence: Number(fence) };
  });
  assert.ok(settled.length >= 4);
  assert.deepEqual(
    settled.map(({ time }) => time),
    settled.map((_, i) => planned + i * 1_000),
  );
  assert.ok((settled.at(-1)?.fence ?? 0) > (settled[0]?.fence ?? 0));
  await server.admin.flushall();
});

test('a job that fails says so, and leaves the slot to the next machine', async () => {
  const failing = start('failed', { FAIL: 'yes', CRON: YEARLY });
  assert.equal(await failing.ended(), 1);
  const next = start('failed', { CRON: YEARLY });
  assert.equal(await next.ended(), 0);
  assert.match(next.lines.join(), /^done: /);
});
