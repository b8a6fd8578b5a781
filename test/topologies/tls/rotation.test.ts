/** Client certificates that are replaced while a manager is connected. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { closeManagers, connect } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { newAuthority, Servers } from './support.js';

const authority = newAuthority();
const servers = new Servers(authority);

afterEach(async () => {
  await closeManagers();
  await servers.stopAll();
});

test('each new connection shows the certificate of that time', async () => {
  const { cert: ca } = authority.ca;
  let current = authority.issue('DNS:first');
  const server = await servers.start(undefined, { client: authority.issue('DNS:admin') });
  let asked = 0;
  const tls = {
    ca: async () => ca,
    cert: async () => {
      asked += 1;
      return current.cert;
    },
    key: () => Buffer.from(current.key),
  };
  const locks = await connect(server.url, { tls });
  const lock = await locks.acquire('a', { ttl: 60_000 });
  current = authority.issue('DNS:expired', { days: -1 });
  const before = asked;
  await server.killClients();
  await until(() => asked > before + 1, 'the certificate to be asked for');
  await assert.rejects(lock.extend(), { code: 'ERR_LOCK_CONNECTION' });
  current = authority.issue('DNS:next');
  await until(() => locks.stats().servers.length === 1, 'the connection');
  await lock.extend();
  assert.ok(lock.held);
});

test('what is no certificate makes connect fail', async () => {
  const server = await servers.start();
  const key = () => authority.ca.key;
  const open = (cert: () => unknown) => connect(server.url, { tls: { cert, key } as never });
  const code = 'ERR_LOCK_CONNECTION';
  await assert.rejects(
    open(() => 's3cret'),
    { code, message: /options\.tls\.cert/ },
  );
  await assert.rejects(
    open(() => 7),
    { code, message: /tls\.cert gives must be PEM.*number/ },
  );
  const fails = () => Promise.reject(new Error('no file'));
  await assert.rejects(open(fails), { code, message: /function tls\.cert failed: no file/ });
});
