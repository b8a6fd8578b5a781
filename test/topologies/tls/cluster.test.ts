/** A Cluster whose servers speak TLS. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { connect, openOperations } from '../../support/holdfast.js';
import { NAMES, newAuthority } from './support.js';

const authority = newAuthority();
const tls = { ca: authority.ca.cert };
let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start({ tls: { server: authority.issue(NAMES), ca: authority.ca } });
});

after(async () => {
  await cluster.stop();
  assert.equal(openOperations(), 0);
});

test('one server is enough to find the others, and waiters are told over TLS as well', async () => {
  const target = { cluster: cluster.urls.slice(0, 1) };
  const [here, there] = await Promise.all([connect(target, { tls }), connect(target, { tls })]);
  const warnings: unknown[] = [];
  for (const each of [here, there]) each.on('warning', (warning) => warnings.push(warning));
  const names = Array.from({ length: 20 }, (_, index) => `item:${index}`);
  const held = await Promise.all(names.map((name) => here.acquire(name)));
  const waiting = names.map((name) => there.acquire(name));
  assert.ok((await Promise.all(held.map((lock) => lock.release()))).every(Boolean));
  for (const granted of waiting) assert.equal(await (await granted).release(), true);
  assert.deepEqual(warnings, []);
  await Promise.all([here.close(), there.close()]);
});

test('a Cluster that is not trusted: one error that says why', async () => {
  await assert.rejects(connect({ cluster: cluster.urls }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /the Cluster of rediss:.*not signed by an authority that this client trusts/,
  });
});

test('servers with and without TLS are no Cluster', async () => {
  const [first = '', second = ''] = cluster.urls;
  await assert.rejects(connect({ cluster: [first, second.replace('rediss:', 'redis:')] }), {
    code: 'ERR_INVALID_ARG_VALUE',
    message: /speak TLS all or none/,
  });
  const plain = { cluster: [first.replace('rediss:', 'redis:')] };
  await assert.rejects(connect(plain, { tls }), {
    code: 'ERR_INVALID_ARG_VALUE',
    message: /options\.tls needs a URL that begins with rediss/,
  });
});
