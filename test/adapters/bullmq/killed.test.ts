/** Workers of BullMQ that are killed while they run jobs: each job is done, and never two of a key at a time. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Queue } from 'bullmq';
import { ROOT } from '../../support/child.js';
import { type Program, spawnProgram } from '../../support/program.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const CUSTOMERS = ['ada', 'bob', 'eve'];
const KILLS = 3;
/**
 * The number of jobs of each customer that are added ahead of each kill. On a busy machine one worker may do all jobs while
 * the next one starts.
 */
const ROUND = 4;

let server: RedisServer;
let queue: Queue;
const programs: Program[] = [];

before(async () => {
  server = await RedisServer.start({ args: ['--maxmemory-policy', 'noeviction'] });
  queue = new Queue('killed', { connection: { host: '127.0.0.1', port: server.port } });
});

after(async () => {
  await Promise.all(programs.map((program) => program.kill()));
  await queue?.close();
  await server?.stop();
});

async function start(): Promise<Program> {
  const program = spawnProgram(
    join(ROOT, 'build', 'test', 'adapters', 'bullmq', 'worker.js'),
    server.url,
    'killed',
  );
  programs.push(program);
  await program.said('ready');
  return program;
}

interface Line {
  readonly what: string;
  readonly customer: string;
  readonly number: number;
  readonly fence: number;
  readonly pid: string;
}

async function journal(): Promise<Line[]> {
  return (await server.admin.lrange('journal', 0, -1)).map((line) => {
    const [what = '', customer = '', number, fence, pid = ''] = line.split(' ');
    return { what, customer, number: Number(number), fence: Number(fence), pid };
  });
}

async function addRound(round: number): Promise<void> {
  const numbers = Array.from({ length: ROUND }, (_, at) => round * ROUND + at);
  await queue.addBulk(
    numbers.flatMap((number) =>
      CUSTOMERS.map((customer) => ({ name: 'job', data: { customer, number } })),
    ),
  );
}

test('every job is done, in order, however often a worker is killed while it runs one', async () => {
  const running = [await start(), await start()];
  const killed = new Set<string>();
  while (killed.size < KILLS) {
    await addRound(killed.size);
    let busy = -1;
    const isOneBusy = async () => {
      const lines = await journal();
      busy = running.findIndex(({ child }) => {
        return lines.filter(({ pid }) => pid === `${child.pid}`).at(-1)?.what === 'begin';
      });
      return busy !== -1;
    };
    await until(isOneBusy, 'a worker to run a job');
    const [victim] = running.splice(busy, 1);
    await victim?.kill();
    killed.add(`${victim?.child.pid}`);
    running.push(await start());
  }
  const jobs = ROUND * KILLS;
  const all = CUSTOMERS.length * jobs;
  await until(async () => (await queue.getCompletedCount()) === all, 'all jobs to be done', 60_000);
  assert.equal(await queue.getFailedCount(), 0);

  const lines = await journal();
  for (const customer of CUSTOMERS) {
    const own = lines.filter((line) => line.customer === customer);
    let before: Line | undefined;
    for (const line of own) {
      // After a begin comes its end, unless its process was killed; then the same job comes again.
      if (before?.what === 'begin' && line.what === 'begin') {
        assert.ok(killed.has(before.pid), 'two at a time');
        assert.equal(line.number, before.number);
      }
      if (line.what === 'end') assert.deepEqual({ ...before, what: 'end' }, line);
      if (before !== undefined) assert.ok(line.fence >= before.fence);
      before = line;
    }
    const ended = own.filter(({ what }) => what === 'end').map(({ number }) => number);
    assert.deepEqual(
      [...new Set(ended)],
      Array.from({ length: jobs }, (_, number) => number),
    );
  }
});
