/** Requests of connections that were given up and reach a server of a quorum all the same, a moment later. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import type { Lock } from 'holdfast';
import { connect, type LockManager } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { until } from '../../support/wait.js';
import { groupOfSuite } from './servers.js';

const MINUTE = 60_000;

describe('a quorum of five', () => {
  const group = groupOfSuite(5);
  let proxies: FaultProxy[];
  let locks: LockManager;

  afterEach(async () => {
    await locks.close();
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await group.reset();
  });

  /** A manager, each of whose connections goes through a proxy of its own. */
  async function open(): Promise<void> {
    proxies = await Promise.all(group.servers.map(({ port }) => FaultProxy.start(port)));
    const quorum = proxies.map(({ url }) => url);
    locks = await connect({ quorum }, { longestLease: 0, serverTimeout: 50, commandTimeout: 300 });
    // The servers know the scripts from here on: a request is executed when it arrives.
    const lock = await locks.acquire('warm-up');
    await lock.extend(MINUTE);
    await lock.release();
  }

  /** A lock that the first server lacks: the vote is on the wire, and its connection was given up. */
  async function acquireWithoutFirst(ttl: number): Promise<Lock> {
    const proxy = proxies[0] as FaultProxy;
    proxy.hold();
    const lock = await locks.acquire('x', { ttl, renew: false });
    const before = proxy.accepted;
    await until(() => proxy.accepted > before && proxy.resets > 0, 'another connection');
    return lock;
  }

  const first = () => group.at(0).admin;

  /** How many scripts the first server has executed. */
  async function executed(): Promise<number> {
    const stats = await first().info('commandstats');
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  }

  test('a late vote does not cut the lease of a server that got a copy meanwhile', async () => {
    await open();
    const other = await group.open();
    await group.at(4).kill();
    const lock = await acquireWithoutFirst(3_000);
    await until(async () => {
      // One that is not connected again yet gets no copy.
      await lock.extend(MINUTE);
      return (await first().get('lock:x')) !== null;
    }, 'the first to get a copy');
    // On the first three from here on, which are a bare majority.
    await group.at(3).kill();
    assert.ok((proxies[0] as FaultProxy).deliver() > 0, 'the vote is late');
    await group.at(3).start();
    await group.at(4).start();
    // For longer than the lease that the vote asked for.
    await assert.rejects(other.acquire('x', { wait: 4_000 }), { code: 'ERR_LOCK_TIMEOUT' });
    assert.ok((await first().pttl('lock:x')) > 40_000);
    assert.equal(lock.held, true);
    assert.equal(await lock.release(), true);
  });

  test('a late vote after the release is withdrawn, though the release was answered', async () => {
    await open();
    const lock = await acquireWithoutFirst(MINUTE);
    const before = await executed();
    assert.equal(await lock.release(), true);
    await until(async () => (await executed()) > before, 'the first to withdraw it, too');
    assert.ok((proxies[0] as FaultProxy).deliver() > 0, 'the vote is late');
    await until(async () => (await first().get('lock:x')) !== null, 'the vote to be executed');
    await group.free('x');
  });
});
