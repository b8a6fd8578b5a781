/** The worker of BullMQ: no two jobs of a customer at a time, in two processes; SIGTERM ends no job. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Queue } from 'bullmq';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

let server: RedisServer;
let queue: Queue;

before(async () => {
  // BullMQ asks for it.
  server = await RedisServer.start({ args: ['--maxmemory-policy', 'noeviction'] });
  queue = new Queue('invoices', { connection: { host: '127.0.0.1', port: server.port } });
});

after(async () => {
  await queue?.close();
  await server?.stop();
});

test('the jobs of each customer run one after the other, under rising fences', async () => {
  const start = () => new Program('bullmq/worker.mjs', { REDIS_URL: server.url });
  const workers = [start(), start()];
  await Promise.all(workers.map((worker) => worker.says(/^ready$/)));
  const jobs = Array.from({ length: 12 }, (_, i) => {
    return { name: 'invoice', data: { customer: ['ada', 'bob'][i % 2], lines: 5 } };
  });
  const added = await queue.addBulk(jobs);
  await until(async () => (await queue.getCompletedCount()) === 12, 'all jobs to be done');

  const done = await Promise.all(added.map(({ id = '' }) => queue.getJob(id)));
  for (const customer of ['ada', 'bob']) {
    const own = done.filter((job) => job?.data.customer === customer);
    const fences = new Set(own.map((job) => job?.returnvalue));
    assert.equal(fences.size, 6);
    for (const { lines } of workers) {
      // Within a process the lines tell the order.
      const said = lines.filter((line) => line.includes(` ${customer} `));
      const kinds = said.map((line) => line.split(' ')[0]);
      assert.ok(
        kinds.every((kind, i) => kind === (i % 2 === 0 ? 'begin' : 'end')),
        said.join('\n'),
      );
    }
  }

  await queue.add('invoice', { customer: 'eve', lines: 40 });
  const busy = () =>
    workers.find(({ lines }) => lines.some((line) => line.startsWith('begin eve')));
  await until(() => busy() !== undefined, 'the last job to begin');
  for (const worker of workers) worker.kill('SIGTERM');
  assert.deepEqual(await Promise.all(workers.map((worker) => worker.ended())), [0, 0]);
  assert.ok(busy()?.lines.some((line) => line.startsWith('end eve')));
  assert.equal(await queue.getCompletedCount(), 13);
});

test('the comparison shows that a customer with many jobs delays no other for long', async () => {
  const program = new Program('bullmq/compare.mjs', { REDIS_URL: server.url });
  assert.equal(await program.ended(), 0, program.lines.join('\n'));
  const means = program.lines
    .flatMap((line) => /: (\d+) ms on average/.exec(line)?.[1] ?? [])
    .map(Number);
  const [, waiting = 0, setAside = 0] = means;
  assert.equal(means.length, 3);
  // The handler that waits keeps the places for most of twenty jobs.
  assert.ok(setAside < waiting / 3, program.lines.join('\n'));
  assert.match(program.lines.at(-1) ?? '', /^oneAtATime: \d\.\d\d times the average without it$/);
});

test('jobs that block are begun twice without holdfast, and with it only those of a killed worker', async () => {
  const program = new Program('bullmq/block.mjs', { REDIS_URL: server.url, JOBS: '6' });
  assert.equal(await program.ended(), 0, program.lines.join('\n'));
  const [without = '', kept = ''] = program.lines;
  assert.match(
    without,
    /^without holdfast: 6 jobs, .* begun again: \d of killed workers, [1-9]\d* of others/,
  );
  assert.match(
    kept,
    /^with holdfast: 6 jobs, 6 completed, 0 failed; begun again: 1 of killed workers, 0 of others/,
  );
});
