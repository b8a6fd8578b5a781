/** The Deployment: its manifest agrees with itself, and its pods hand over within the grace period. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { parse } from 'yaml';
import { ROOT } from '../../support/child.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { Program } from './program.js';

const manifest = parse(
  readFileSync(join(ROOT, 'examples', 'kubernetes', 'deployment.yaml'), 'utf8'),
  { strict: true },
);
const { spec: pod, metadata } = manifest.spec.template;
const [container] = pod.containers;
const env = new Map<string, string | undefined>(
  container.env.map((each: { name: string; value?: string }) => [each.name, each.value]),
);

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

test('the manifest agrees with itself, and with the program', () => {
  assert.deepEqual([manifest.apiVersion, manifest.kind], ['apps/v1', 'Deployment']);
  assert.deepEqual(manifest.spec.selector.matchLabels, metadata.labels);
  assert.ok(manifest.spec.replicas > 1);
  assert.ok(Number(env.get('LOCK_TTL_MS')) < pod.terminationGracePeriodSeconds * 1_000);
  const source = readFileSync(join(ROOT, 'examples', 'kubernetes', 'worker.mjs'), 'utf8');
  const read = Array.from(source.matchAll(/process\.env\.(\w+)/g), ([, name]) => name);
  assert.deepEqual([...env.keys()].sort(), [...new Set(read)].sort());
  // As process 1, without a shell that would keep the signal.
  assert.deepEqual(container.command, ['node', 'worker.mjs']);
});

test('on SIGTERM the leader hands over before its lease ends, and ends within the grace period', async () => {
  const start = (name: string) =>
    new Program('kubernetes/worker.mjs', {
      REDIS_URL: server.url,
      POD_NAME: name,
      // So long that only a release can free the lock while this test lasts.
      LOCK_TTL_MS: '600000',
    });
  const pods = [start('pod-1'), start('pod-2'), start('pod-3')];
  const leads = ({ lines }: Program) => lines.some((line) => line.startsWith('leads'));
  const fences: number[] = [];
  while (pods.length > 0) {
    await until(() => pods.some(leads), 'one to lead');
    const [leader] = pods.splice(pods.findIndex(leads), 1);
    assert.ok(leader !== undefined && !pods.some(leads), 'two lead');
    fences.push(Number(/leads with (\d+)/.exec(leader.lines.join())?.[1]));
    leader.kill('SIGTERM');
    const ended = await Promise.race([leader.ended(), grace()]);
    assert.equal(ended, 0, leader.lines.join('\n'));
    assert.deepEqual(leader.lines.slice(1), ['hands over', 'ended']);
  }
  assert.deepEqual(
    fences,
    [...fences].sort((a, b) => a - b),
  );
  assert.equal(new Set(fences).size, 3);
});

/** What Kubernetes does after the grace period. */
function grace(): Promise<string> {
  return new Promise((resolve) => {
    const ms = pod.terminationGracePeriodSeconds * 1_000;
    setTimeout(() => resolve('SIGKILL'), ms).unref();
  });
}

test('a pod that waits ends on SIGTERM, too', async () => {
  const start = (name: string) =>
    new Program('kubernetes/worker.mjs', {
      REDIS_URL: server.url,
      POD_NAME: name,
      LOCK_TTL_MS: '10000',
    });
  const leader = start('pod-1');
  await leader.says(/^leads/);
  const waiter = start('pod-2');
  const queue = () => server.admin.keys('*:queue');
  await until(async () => (await queue()).length === 1, 'the second to wait');
  waiter.kill('SIGTERM');
  assert.equal(await waiter.ended(), 0);
  assert.deepEqual(waiter.lines, ['ended']);
  leader.kill('SIGTERM');
  assert.equal(await leader.ended(), 0);
});
