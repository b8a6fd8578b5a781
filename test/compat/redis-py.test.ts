import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holdfast } from '../support/holdfast.js';
import type { RedisServer } from '../support/server.js';
import { PythonProgram, pythonWithRedis } from './python.js';
import { LONG_MS, type Peer, type PeerLock, testRollingDeploy } from './rolling-deploy.js';

interface PythonPeer extends Peer {
  /** Takes a lock as redis-py does by default: without an end to its lease. */
  takeForEver(name: string): Promise<PeerLock | null>;
}

async function open(server: RedisServer): Promise<PythonPeer> {
  const program = new PythonProgram(await pythonWithRedis(), 'redis_py.py', [String(server.port)]);
  const acquire = async (
    name: string,
    ttl: number | null,
    wait: number,
  ): Promise<PeerLock | null> => {
    const lock = await program.call({ do: 'acquire', name, ttl, wait });
    return lock === null ? null : peerLock(program, lock);
  };
  return {
    tryAcquire: (name, ttl) => acquire(name, ttl, 0),
    acquire: async (name, ttl) => {
      const held = await acquire(name, ttl, LONG_MS);
      assert.ok(held !== null, 'it was refused all the time');
      return held;
    },
    takeForEver: (name) => acquire(name, null, 0),
    close: () => program.close(),
  };
}

function peerLock(program: PythonProgram, lock: unknown): PeerLock {
  return {
    release: async () => (await program.call({ do: 'release', lock })) === true,
    extend: async (ttl) => (await program.call({ do: 'extend', lock, ttl })) === true,
  };
}

const stage = testRollingDeploy('redis-py', open);

test('redis-py: its lock without a lease keeps us out until it is released', async () => {
  const { locks, peer } = stage;
  const held = await peer.takeForEver('for ever');
  assert.equal(await locks.tryAcquire('for ever'), null);
  await assert.rejects(locks.acquire('for ever', { wait: 100 }), (error) => {
    assert.ok(error instanceof holdfast.LockTimeoutError);
    assert.match(
      error.message,
      /it is held by other code, and its lease has no end; the caller was number 1 in the wait queue$/,
    );
    assert.equal(error.remaining, undefined);
    return true;
  });
  assert.equal(await held?.release(), true);
  const lock = await locks.acquire('for ever', { wait: 0 });
  assert.equal(await lock.release(), true);
});
