/** Further ways of `roam`: locks that are taken away, handed over, and requested twice. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { LockJson } from 'holdfast';
import { type HoldRequest, now } from '../../support/history.js';
import { requestOf, use, useAndRelease, WAYS, type Way, work } from '../../support/roam.js';
import type { Journal } from './journal.js';

/** The list of tokens for processes that adopt locks. */
const HANDED_OVER = 'handed over';

interface HandedOver {
  readonly lock: LockJson;
  readonly request: HoldRequest;
}

/** The ways of a process that takes no lock away from another. */
export function calmWays(journal: Journal, alone: boolean): readonly Way[] {
  const nested: Way = (ground, names, options) => {
    const request = requestOf(now(), options);
    const { locks, wait } = ground;
    const wanted = { ...options, wait, reentrant: true };
    return locks.request(names as string, wanted, async (taken) => {
      await locks.request(names as string, wanted, () => work(ground));
      // The inner request has released nothing.
      await use(ground, taken, request);
      return 'ok';
    });
  };

  const handOver: Way = async (ground, names, options) => {
    const request = { ...requestOf(now(), options), heritage: journal.uniqueId() };
    const { dice, locks, wait } = ground;
    const lock = await locks.acquire(oneOf(names), { ...options, wait });
    const recorded = journal.begin(lock, request);
    ground.remember(lock, recorded);
    await work(ground);
    journal.end(recorded);
    const message: HandedOver = { lock: lock.toJSON(), request };
    await journal.redis.lpush(HANDED_OVER, JSON.stringify(message));
    // Somebody adopts it meanwhile, or nobody does.
    await sleep(dice.below(100));
    await lock.release();
    return 'ok';
  };

  const adopt: Way = async (ground, _names, { ttl }) => {
    const message = await journal.redis.rpop(HANDED_OVER);
    if (message === null) return 'nothing';
    const { lock, request } = JSON.parse(message) as HandedOver;
    return useAndRelease(ground, await ground.locks.adopt(lock, { ttl }), request);
  };

  return alone ? [...WAYS, nested] : [...WAYS, nested, handOver, adopt];
}

/** All ways, those that take locks away included. */
export function roughWays(journal: Journal, alone: boolean): readonly Way[] {
  const steal: Way = async (ground, names, { ttl, label, renew }) => {
    const name = oneOf(names);
    const asked = now();
    const robbed = await journal.rift(name, () =>
      ground.locks.acquire(name, { ttl, label, renew, steal: true }),
    );
    return useAndRelease(ground, robbed, { asked, shared: false });
  };

  const forceRelease: Way = async (ground, names) => {
    const name = oneOf(names);
    const held = await journal.rift(name, () => ground.locks.forceRelease(name));
    return held ? 'ok' : 'nothing';
  };

  const calm = calmWays(journal, alone);
  // Seldom enough that most holds are not stolen.
  return alone ? calm : [...calm, ...calm, ...calm, steal, forceRelease];
}

function oneOf(names: string | string[]): string {
  return [names].flat()[0] as string;
}
