/** An application in three processes: of all that start a job at a tick, one runs it. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { type Program, spawnProgram } from '../../support/program.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const PROCESSES = 3;
const TICKS = 1_000;

let server: RedisServer;
let programs: Program[];

before(async () => {
  server = await RedisServer.start();
  const file = join(ROOT, 'build', 'test', 'adapters', 'nest', 'app.js');
  programs = Array.from({ length: PROCESSES }, () => spawnProgram(file, server.url, `${TICKS}`));
});

after(async () => {
  await Promise.all(programs.map((program) => program.kill()));
  await server?.stop();
});

test('a thousand ticks have one body each, and fences that rise', async () => {
  await Promise.all(programs.map((program) => program.said('ticked', 120_000)));
  const journal = (await server.admin.lrange('journal:counted', 0, -1)).map((line) =>
    line.split(' '),
  );
  const slots = journal.map(([slot]) => Number(slot)).sort((a, b) => a - b);
  assert.deepEqual(
    slots,
    Array.from({ length: TICKS }, (_, tick) => tick + 1),
  );
  const fences = journal.map(([, fence]) => Number(fence));
  assert.deepEqual(
    fences,
    [...new Set(fences)].sort((a, b) => a - b),
  );
});

for (const job of ['timed', 'planned']) {
  test(`a job of each second runs once in each, by the timers of three processes: ${job}`, async () => {
    await until(async () => (await server.admin.llen(`journal:${job}`)) >= 4, 'some seconds');
    const slots = await server.admin.lrange(`journal:${job}`, 0, -1);
    assert.equal(new Set(slots).size, slots.length, slots.join());
    for (const slot of slots) assert.equal(Date.parse(slot) % 1_000, 0, slot);
  });
}

test('at SIGTERM each closes its locks, and ends', async () => {
  for (const { child } of programs) child.kill('SIGTERM');
  await until(
    () => programs.every(({ child }) => child.exitCode !== null || child.signalCode !== null),
    'all to end',
  );
  for (const { output } of programs) assert.equal(output, 'ticked\n');
  assert.equal(await server.admin.exists('counted', 'timed', 'planned'), 0);
});
