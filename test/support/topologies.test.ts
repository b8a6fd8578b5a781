/** The servers of the tests: do they form what they should, and fail over as they should? */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as dial } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { Cluster } from './cluster.js';
import { isPrimary, replicationOf } from './replication.js';
import { Sentinels } from './sentinels.js';
import { RedisServer } from './server.js';
import { until } from './wait.js';

test('independent servers: each has its own data', async () => {
  const servers = await RedisServer.startSeveral(5);
  await Promise.all(servers.map(({ admin, port }) => admin.set('port', port)));
  for (const { admin, port } of servers) assert.equal(await admin.get('port'), String(port));
  await Promise.all(servers.map((server) => server.stop()));
});

test('a server is running until it is stopped or killed', async () => {
  const server = await RedisServer.start();
  assert.equal(server.running, true);
  server.pause();
  assert.equal(server.running, false);
  server.resume();
  assert.equal(server.running, true);
  await server.kill();
  assert.equal(server.running, false);
  await server.start();
  assert.equal(server.running, true);
  await server.stop();
});

describe('a Sentinel deployment with passwords', () => {
  let deployment: Sentinels;

  before(async () => {
    deployment = await Sentinels.start({
      replicas: 2,
      password: 'one',
      sentinelPassword: 'two',
    });
  });

  after(() => deployment.stop());

  test('all agree on the master, and its replicas have its data', async () => {
    const master = await deployment.master();
    assert.equal(master, deployment.servers[0]);
    await master.admin.set('x', 1);
    await deployment.inSync();
    for (const replica of await deployment.replicas()) {
      assert.equal(await replica.admin.get('x'), '1');
      assert.equal(await isPrimary(replica), false);
    }
  });

  test('an ordered failover', async () => {
    const old = await deployment.master();
    assert.notEqual(await deployment.failOver(), old);
  });

  test('SIGSTOP of the master: after SIGCONT it takes itself for the master for a while', async () => {
    const old = await deployment.master();
    old.pause();
    const master = await deployment.failedOver(old);
    old.resume();
    assert.equal(await isPrimary(old), true);
    assert.equal(await isPrimary(master), true);
  });

  test('kill -9 of the master, and its return', async () => {
    const old = await deployment.master();
    await old.kill();
    const master = await deployment.failedOver(old);
    assert.equal(await master.admin.get('x'), '1');
    await old.start();
    await deployment.demoted(old);
    await deployment.inSync();
  });
});

describe('servers that announce proxies', () => {
  test('Sentinels and replicas come through them too, and may be cut off alone', async (t) => {
    const deployment = await Sentinels.start({ proxied: true });
    t.after(() => deployment.stop());
    const master = await deployment.master();
    // Two of each Sentinel, for commands and for messages, and the replica's.
    await until(() => master.proxy.open >= 7, 'all to be there');
    const client = dial(master.announced, '127.0.0.1');
    client.on('error', () => {});
    t.after(() => client.destroy());
    const ask = async (command: string) => {
      client.write(`${command}\r\n`);
      return String(await once(client, 'data'));
    };
    master.proxy.sparesClients = true;
    master.proxy.blackhole = true;
    assert.match(await ask('HELLO 2'), /version/);
    const promoted = await deployment.failedOver(master);
    assert.equal(await ask('SET x 1'), '+OK\r\n');
    assert.equal(await isPrimary(master), true);
    assert.equal(await promoted.admin.get('x'), null);
  });

  test('a Cluster names them in its answers, and its replicas come through them', async (t) => {
    const cluster = await Cluster.start({ replicas: 1, proxied: true });
    t.after(() => cluster.stop());
    const [primary] = await cluster.primaries();
    assert.ok(primary);
    const told = String(await primary.admin.cluster('NODES'));
    for (const { announced } of cluster.nodes) assert.match(told, new RegExp(`:${announced}@`));
    assert.equal(primary.proxy.open, 1, 'its replica');
  });
});

describe('a Cluster of three primaries with a replica each', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.start({ replicas: 1 });
  });

  after(() => cluster.stop());

  test('each slot has its primary, and that one its replica', async () => {
    const slots = await Promise.all(['a', 'b', 'c'].map((key) => cluster.slotOf(key)));
    const primaries = await Promise.all(slots.map((slot) => cluster.primaryOf(slot)));
    assert.equal(new Set(primaries).size, 3);
    for (const primary of primaries) {
      assert.equal(await isPrimary(primary), true);
      assert.equal((await cluster.replicasOf(primary)).length, 1);
    }
  });

  test('a slot and its keys move', async () => {
    const slot = await cluster.slotOf('a');
    const from = await cluster.primaryOf(slot);
    const to = await cluster.primaryOf(await cluster.slotOf('b'));
    await from.admin.set('a', 1);
    const move = await cluster.startMove(slot, to);
    await assert.rejects(from.admin.get('{a}absent'), /ASK/);
    await move.keys();
    await assert.rejects(from.admin.get('a'), /ASK/);
    assert.equal(await cluster.primaryOf(slot), from);
    await move.finish();
    assert.equal(await cluster.primaryOf(slot), to);
    assert.equal(await to.admin.get('a'), '1');
    await cluster.moveSlot(slot, from);
    assert.equal(await from.admin.get('a'), '1');
  });

  test('an ordered failover', async () => {
    const slot = await cluster.slotOf('a');
    const old = await cluster.primaryOf(slot);
    const primary = await cluster.failOver(slot);
    assert.notEqual(primary, old);
    assert.equal(await primary.admin.get('a'), '1');
    await cluster.inSync(primary);
  });

  test('kill -9 of a primary, and its return', async () => {
    const slot = await cluster.slotOf('a');
    const old = await cluster.primaryOf(slot);
    await old.admin.set('a', 2);
    await cluster.inSync(old);
    await old.kill();
    const primary = await cluster.failedOver(slot, old);
    assert.equal(await primary.admin.get('a'), '2');
    await old.start();
    await until(async () => !(await isPrimary(old)), 'the old primary to follow');
    await cluster.inSync(primary);
  });

  test('SIGSTOP of a primary: another serves its slots, and it follows after SIGCONT', async () => {
    const slot = await cluster.slotOf('a');
    const old = await cluster.primaryOf(slot);
    old.pause();
    const primary = await cluster.failedOver(slot, old);
    old.resume();
    await until(async () => !(await isPrimary(old)), 'the old primary to follow');
    await cluster.inSync(primary);
    assert.equal((await replicationOf(old)).get('master_port'), String(primary.port));
  });

  test('a primary that reaches none of the others refuses all commands', async () => {
    const primary = await cluster.primaryOf(await cluster.slotOf('a'));
    const others = cluster.nodes.filter((node) => node !== primary);
    for (const other of others) other.pause();
    const refuses = async () => String(await primary.admin.set('a', 2).catch(String));
    await until(async () => /CLUSTERDOWN/.test(await refuses()), 'it to refuse');
    for (const other of others) other.resume();
    // Another may serve the slot by then.
    await until(async () => /OK|MOVED/.test(await refuses()), 'all to go on');
  });
});
