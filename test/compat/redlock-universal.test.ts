import type { RedisServer } from '../support/server.js';
import { orIfRefused } from './refusal.js';
import { type Peer, type PeerLock, testRollingDeploy } from './rolling-deploy.js';

const ONCE = { retryAttempts: 0 };
const PATIENT = { retryAttempts: 10_000, retryDelay: 10 };

async function open(server: RedisServer): Promise<Peer> {
  const { createLock, IoredisAdapter, LockAcquisitionError } = await import('redlock-universal');
  const client = server.client();
  const adapter = new IoredisAdapter(client);

  const acquire = async (key: string, ttl: number, retries: object): Promise<PeerLock> => {
    const lock = createLock({ adapter, key, ttl, ...retries });
    const handle = await lock.acquire();
    return {
      release: () => lock.release(handle),
      extend: (more) => lock.extend(handle, more),
    };
  };
  return {
    tryAcquire: (name, ttl) => orIfRefused(acquire(name, ttl, ONCE), LockAcquisitionError, null),
    acquire: (name, ttl) => acquire(name, ttl, PATIENT),
    close: () => adapter.disconnect(),
  };
}

testRollingDeploy('redlock-universal', open);
