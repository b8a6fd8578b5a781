/**
 * A master that is cut off from its replicas and Sentinels, and that clients reach all the same, while another is
 * promoted: the effect of `replicas` then.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { isPrimary } from '../../support/replication.js';
import { Sentinels } from '../../support/sentinels.js';
import { until } from '../../support/wait.js';

const PATIENT = { ttl: 4_000, wait: 30_000 };

/**
 * Renewals are not confirmed by replicas:
 *
 * 1. A has a lock that a replica also has. Its master is cut off from the replicas, but not from A, and A renews there.
 * 2. The replica is promoted, and there the lease ends.
 * 3. B is granted the lock, and another replica confirms it.
 * 4. A and B both hold it until A learns of the new master or its renewals fail. B's fence is greater.
 */
test('replicas: a master that is cut off grants nothing more; what was granted before is lengthened there', async (t) => {
  const deployment = await Sentinels.start({ replicas: 2, proxied: true });
  // The only way to the Sentinels for managers that are cut off from them later.
  const hearsay = await FaultProxy.start(deployment.sentinels[0]?.port ?? 0);
  t.after(() => Promise.all([hearsay.stop(), deployment.stop()]));
  const there = { sentinels: [`127.0.0.1:${hearsay.port}`], master: deployment.name };
  const late = await connect(there, { clientName: 'late', replicas: 1 });
  const early = await connect(deployment.target, { clientName: 'early', replicas: 1 });
  t.after(() => Promise.all([late.close(), early.close()]));
  const kept = await late.acquire('kept', PATIENT);
  await late.acquire('free', PATIENT).then((lock) => lock.release());
  await deployment.inSync();
  const old = await deployment.master();

  hearsay.blackhole = true;
  old.proxy.sparesClients = true;
  old.proxy.blackhole = true;
  const master = await deployment.failedOver(old);
  const free = await early.acquire('free', PATIENT);
  await assert.rejects(late.acquire('free', PATIENT), {
    code: 'ERR_LOCK_SERVER',
    serverCode: 'NOREPLICAS',
  });
  await until(async () => (await old.admin.exists('lock:free')) === 0, 'it to be given back');
  const second = await early.acquire('kept', PATIENT);
  assert.equal(await isPrimary(old), true);
  assert.equal(kept.held, true, 'a renewal waits for no replica');
  assert.ok(second.fence > kept.fence, 'a resource that checks fences refuses it');

  for (const way of [hearsay, old.proxy]) {
    way.cut();
    way.blackhole = false;
  }
  await until(() => kept.signal.aborted, 'the loss to be told', 60_000);
  assert.equal(await master.admin.exists('lock:free', 'lock:kept'), 2);
  assert.deepEqual([free.held, second.held], [true, true]);
  assert.deepEqual([await free.release(), await second.release()], [true, true]);
});
