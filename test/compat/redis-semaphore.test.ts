import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Redis } from 'ioredis';
import { Mutex } from 'redis-semaphore';
import type { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';
import {
  assertUntouched,
  LONG_MS,
  type Peer,
  type PeerLock,
  testRollingDeploy,
} from './rolling-deploy.js';

/** The prefix of its Mutex. */
const PREFIX = 'mutex:';

async function open(server: RedisServer): Promise<Peer> {
  const client = server.client();
  return {
    tryAcquire: async (name, lockTimeout) => {
      const once = { lockTimeout, refreshInterval: 0, acquireAttemptsLimit: 1 };
      const mutex = new Mutex(client, name, once);
      return (await mutex.tryAcquire()) ? peerLock(client, name, mutex) : null;
    },
    acquire: async (name, lockTimeout) => {
      const patient = { lockTimeout, refreshInterval: 0, acquireTimeout: LONG_MS };
      const mutex = new Mutex(client, name, patient);
      await mutex.acquire();
      return peerLock(client, name, mutex);
    },
    close: async () => client.disconnect(),
  };
}

function peerLock(client: Redis, name: string, mutex: Mutex): PeerLock {
  return {
    release: async () => {
      await mutex.release();
      return undefined;
    },
    // It extends by its timer only. Taking a mutex over from its owner does the same on demand.
    extend: (lockTimeout) => {
      const { identifier } = mutex;
      const options = { identifier, lockTimeout, refreshInterval: 0 };
      return new Mutex(client, name, { ...options, acquiredExternally: true }).tryAcquire();
    },
  };
}

const stage = testRollingDeploy('redis-semaphore', open, PREFIX);

test('redis-semaphore: its refresh timer leaves our lock alone (key deleted)', async () => {
  const { server, locks } = stage;
  const client = server.client();
  let lost = false;
  const mutex = new Mutex(client, 'refreshed', {
    lockTimeout: LONG_MS / 4,
    // Late enough for us to take the lock first.
    refreshInterval: 500,
    onLockLost: () => {
      lost = true;
    },
  });
  try {
    await mutex.acquire();
    assert.equal(await server.admin.del(`${PREFIX}refreshed`), 1);
    const lock = await locks.acquire('refreshed', { ttl: LONG_MS, wait: 0 });
    await until(() => lost, 'its refresh');
    await assertUntouched(server, `${PREFIX}refreshed`, lock.token);
    assert.equal(await lock.release(), true);
  } finally {
    mutex.stopRefresh();
    client.disconnect();
  }
});
