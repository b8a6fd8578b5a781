import Redlock from 'redlock4';
import type { RedisServer } from '../support/server.js';
import { allowed, orIfRefused } from './refusal.js';
import { type PeerLock, testRollingDeploy } from './rolling-deploy.js';
import { type SeveralNamesPeer, testSeveralNames } from './several-names.js';

const { LockError } = Redlock;

async function open(server: RedisServer): Promise<SeveralNamesPeer> {
  const client = server.client();
  const once = new Redlock([client], { retryCount: 0 });
  const patient = new Redlock([client], { retryCount: -1, retryDelay: 10, retryJitter: 5 });
  const tryAcquireAll = (names: string[], ttl: number) =>
    orIfRefused(once.acquire(names, ttl).then(peerLock), LockError, null);
  return {
    tryAcquireAll,
    tryAcquire: (name, ttl) => tryAcquireAll([name], ttl),
    acquire: async (name, ttl) => peerLock(await patient.acquire([name], ttl)),
    close: async () => client.disconnect(),
  };
}

function peerLock(lock: Redlock.Lock): PeerLock {
  return {
    release: () => allowed(lock.unlock(), LockError),
    extend: (ttl) => allowed(lock.extend(ttl), LockError),
  };
}

testSeveralNames('redlock 4', testRollingDeploy('redlock 4', open));
