/** Sentinels, a master and a replica that speak TLS. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, openOperations } from '../../support/holdfast.js';
import { Sentinels } from '../../support/sentinels.js';
import { until } from '../../support/wait.js';
import { NAMES, newAuthority } from './support.js';

const authority = newAuthority();
const tls = { ca: authority.ca.cert };
let deployment: Sentinels;

before(async () => {
  const options = { server: authority.issue(NAMES), ca: authority.ca };
  deployment = await Sentinels.start({ tls: options, sentinelPassword: 's3cret' });
});

after(async () => {
  await deployment.stop();
  assert.equal(openOperations(), 0);
});

test('the master is found and followed over TLS', async () => {
  const locks = await connect(deployment.target, { tls });
  const lock = await locks.acquire('a', { ttl: 60_000 });
  const old = await deployment.master();
  assert.equal(await old.admin.get('lock:a'), lock.token);
  const successor = await deployment.failOver();
  assert.equal(await lock.release(), true);
  // The old master takes locks until the manager has heard of the other, which may be a moment later than we did.
  await until(async () => {
    const next = await locks.acquire('b', { wait: 30_000 });
    const isThere = (await successor.admin.get('lock:b')) === next.token;
    await next.release();
    return isThere;
  }, 'the manager to follow the new master');
  await locks.close();
});

test('Sentinels that are not trusted: an error that says why, of each', async () => {
  await assert.rejects(connect(deployment.target), (error: Error & { code: string }) => {
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.equal(
      error.message.match(/not signed by an authority that this client trusts/g)?.length,
      3,
    );
    assert.ok(!error.message.includes('s3cret'));
    return true;
  });
});
