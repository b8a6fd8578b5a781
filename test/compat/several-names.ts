/** A further feature of the Redlock clients: they take several names or none. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LONG_MS, type Peer, type PeerLock, type Stage } from './rolling-deploy.js';

export interface SeveralNamesPeer extends Peer {
  /** One attempt; null if any of the locks is held. */
  tryAcquireAll(names: string[], ttl: number): Promise<PeerLock | null>;
}

export function testSeveralNames(title: string, stage: Stage<SeveralNamesPeer>): void {
  test(`${title}: its lock on several names is refused while we hold one, and takes none`, async () => {
    const { server, locks, peer } = stage;
    const lock = await locks.acquire('second', { ttl: LONG_MS });
    assert.equal(await peer.tryAcquireAll(['first', 'second'], LONG_MS), null);
    assert.equal(await server.admin.exists('first'), 0);
    assert.equal(await lock.release(), true);
  });

  test(`${title}: its lock on several names keeps us from each of them`, async () => {
    const { locks, peer } = stage;
    const held = await peer.tryAcquireAll(['first', 'second'], LONG_MS);
    assert.equal(await locks.tryAcquire('first'), null);
    assert.equal(await locks.tryAcquire('second'), null);
    assert.equal(await held?.release(), true);
  });
}
