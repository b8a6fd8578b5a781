import Redlock, { ExecutionError, type Lock } from 'redlock5';
import type { RedisServer } from '../support/server.js';
import { allowed, orIfRefused } from './refusal.js';
import { type PeerLock, testRollingDeploy } from './rolling-deploy.js';
import { type SeveralNamesPeer, testSeveralNames } from './several-names.js';

async function open(server: RedisServer): Promise<SeveralNamesPeer> {
  const client = server.client();
  // Its locks do not retry a release or an extension either.
  const redlock = new Redlock([client], { retryCount: 0 });
  const patient = { retryCount: -1, retryDelay: 10, retryJitter: 5 };
  const tryAcquireAll = (names: string[], ttl: number) =>
    orIfRefused(redlock.acquire(names, ttl).then(peerLock), ExecutionError, null);
  return {
    tryAcquireAll,
    tryAcquire: (name, ttl) => tryAcquireAll([name], ttl),
    acquire: async (name, ttl) => peerLock(await redlock.acquire([name], ttl, patient)),
    close: async () => client.disconnect(),
  };
}

function peerLock(lock: Lock): PeerLock {
  // An extension makes a new lock of it and ends the old one.
  let latest = lock;
  return {
    release: () => allowed(latest.release(), ExecutionError),
    extend: async (ttl) => {
      const extended = await orIfRefused(latest.extend(ttl), ExecutionError, null);
      latest = extended ?? latest;
      return extended !== null;
    },
  };
}

testSeveralNames('redlock 5', testRollingDeploy('redlock 5', open));
