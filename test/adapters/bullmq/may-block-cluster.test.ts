/** `mayBlock` in a Cluster: the lock of a job is renewed where its queue is. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Queue, Worker } from 'bullmq';
import { mayBlock } from 'holdfast/bullmq';
import { Cluster as Client } from 'ioredis';
import { Cluster } from '../../support/cluster.js';
import { closeManagers, connect } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

const LOCK_MS = 600;

let cluster: Cluster;
const clients: Client[] = [];

before(async () => {
  cluster = await Cluster.start();
});

after(async () => {
  for (const client of clients) client.disconnect();
  await closeManagers();
  await cluster?.stop();
});

function client(): Client {
  const nodes = cluster.urls.map((url) => ({
    host: new URL(url).hostname,
    port: Number(new URL(url).port),
  }));
  const made = new Client(nodes, { redisOptions: { maxRetriesPerRequest: null } });
  clients.push(made);
  return made;
}

test('a job that blocks keeps its lock, on whatever server its queue is', async () => {
  const locks = await connect({ cluster: cluster.urls });
  // One slot each, on different servers.
  for (const prefix of ['{a}', '{b}', '{c}']) {
    const queue = new Queue('blocked', { connection: client(), prefix });
    const block = async () => {
      const end = performance.now() + 3 * LOCK_MS;
      while (performance.now() < end);
    };
    const given = { connection: client(), prefix, lockDuration: LOCK_MS, skipLockRenewal: true };
    const worker = new Worker('blocked', mayBlock(locks, block), given);
    const errors: Error[] = [];
    worker.on('error', (error) => errors.push(error));
    await queue.add('job', {});
    // Without its lock BullMQ would not record its end.
    await until(async () => (await queue.getCompletedCount()) === 1, 'the job to be done');
    assert.deepEqual(errors, []);
    await worker.close();
    await queue.close();
  }
});
