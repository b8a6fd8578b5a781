/** The command line on TLS, on a Cluster and on a quorum. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { RedisServer } from '../../support/server.js';
import { NAMES, newAuthority, Servers } from '../../topologies/tls/support.js';
import { ends, environment } from './support.js';

const authority = newAuthority();
const servers = new Servers(authority);
const env = environment();

afterEach(() => servers.stopAll());

test('TLS with a CA, a certificate and a key from files', async () => {
  const client = authority.issue(NAMES);
  const server = await servers.start(authority.issue(NAMES), { client });
  const files = ['--ca', authority.ca.certFile, '--cert', client.certFile, '--key', client.keyFile];
  const args = ['run', 'job', '--url', server.url];
  const { stdout } = await ends(0, env, ...args, ...files, '--', 'echo', 'ran');
  assert.equal(stdout, 'ran\n');
  await ends(0, env, 'doctor', '--url', server.url, ...files);
  const alone = await ends(69, env, ...args, '--', 'true');
  assert.match(alone.stderr, /certificate/);
  const wrong = join(server.folder, 'wrong.pem');
  writeFileSync(wrong, 'nothing');
  const unusable = await ends(64, env, ...args, '--ca', wrong, '--', 'true');
  assert.match(unusable.stderr, /options\.tls\.ca/);
  const asked = await ends(1, env, 'doctor', '--url', server.url);
  assert.match(asked.stdout, /PROBLEM +connection .*certificate/);
});

test('a Cluster, whichever server has the lock', async () => {
  const cluster = await Cluster.start();
  try {
    const place = ['--cluster', cluster.urls[0] ?? '', '--cluster', cluster.urls[1] ?? ''];
    for (const name of ['a', 'b', 'c', 'd']) {
      await ends(0, env, 'run', name, ...place, '--at-least', '1h', '--', 'true');
      const primary = await cluster.primaryOf(await cluster.slotOf(`lock:old:${name}`));
      await primary.admin.set(`lock:old:${name}`, 'other code');
      const { stdout } = await ends(0, env, 'show', `old:${name}`, ...place);
      assert.match(stdout, /held by other code/);
    }
    const { stdout } = await ends(0, env, 'ls', ...place, '--json');
    const names = JSON.parse(stdout).locks.map(({ name }: { name: string }) => name);
    assert.deepEqual(names, ['a', 'b', 'c', 'd']);
    await ends(0, env, 'release', 'a', '--yes', ...place);
    await ends(75, env, 'run', 'b', '--if-available', ...place, '--', 'true');
  } finally {
    await cluster.stop();
  }
});

test('a quorum, whose servers vote when the longest lease has passed', async () => {
  const three = await RedisServer.startSeveral(3, { persistent: true });
  try {
    const place = three.flatMap(({ url }) => ['--quorum', url]);
    const atOnce = [...place, '--longest-lease', '0ms'];
    const first = await ends(
      0,
      env,
      'run',
      'job',
      ...atOnce,
      '--at-least',
      '1h',
      '--',
      'echo',
      'ran',
    );
    assert.deepEqual([first.stdout, first.stderr], ['ran\n', '']);
    await ends(75, env, 'run', 'job', ...atOnce, '--if-available', '--', 'true');
    for (const lease of [
      ['--ttl', '1h'],
      ['--at-least', '1h'],
      ['--longest-lease', '1h'],
      ['--longest-lease', '1h', '--ttl', '1m'],
      ['--longest-lease', '1m', '--ttl', '1h'],
    ]) {
      const args = ['run', 'other', ...place, ...lease, '--if-available'];
      const { stderr } = await ends(69, env, ...args, '--', 'true');
      const within = Number(/has no vote within (\d+) ms/.exec(stderr)?.[1]);
      assert.ok(within >= 3_600_000, `${lease.join(' ')}: ${stderr}`);
    }
    for (const command of [['ls'], ['show', 'job'], ['watch'], ['release', 'job', '--yes']]) {
      const { stderr } = await ends(64, env, ...command, ...place);
      assert.match(stderr, /quorum/);
    }
  } finally {
    await Promise.all(three.map((server) => server.stop()));
  }
});

test('--longest-lease is for a quorum', async () => {
  const nowhere = ['--url', 'redis://127.0.0.1:1', '--longest-lease', '1s'];
  const { stderr } = await ends(64, env, 'ls', ...nowhere);
  assert.match(stderr, /longestLease is for a quorum/);
});
