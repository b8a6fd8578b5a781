// What is counted: each scenario opens what it needs, and then runs a number of units, the same way each time.

import { DROP_INS, open as openDropIn } from '../../bench/dropins/peers.mjs';
import { namesFor } from '../../bench/pairs/measure.mjs';
import { PEERS, YARDSTICK } from '../../bench/pairs/peers.mjs';

const TTL_MS = 10_000;
/** Valgrind holds a process up for seconds when it begins to count. */
const TIMEOUT_MS = 60_000;

/**
 * `open` answers `run(units)`, which resolves with the number of units that it has run, at least so many. `units`: a part
 * of the usual number, where one takes long.
 */
export const SCENARIOS = {
  [YARDSTICK]: { open: openYardstick },
  'acquire, alone': { units: 1 / 2, open: (url) => openLocks(url, 1) },
  'acquire, 64 in flight': { open: (url) => openLocks(url, 64) },
  'acquire, 1000 in flight': { open: (url) => openLocks(url, 1_000) },
  'request, 64 in flight': { open: openRequests },
  'share, 64 in flight': { open: openShares },
  'handoff between managers': { units: 1 / 6, open: openHandoffs },
  'hold by linger': { open: openLinger },
  ...Object.fromEntries(
    DROP_INS.filter(({ servers = 1 }) => servers === 1).map(({ id }) => [
      `drop-in ${id}`,
      { units: 1 / 2, open: (url) => openPairsOfDropIn(url, id) },
    ]),
  ),
};

async function openYardstick(url) {
  return loopOfPeer(await PEERS.find((each) => each.id === YARDSTICK).open(url), YARDSTICK);
}

async function openLocks(url, level) {
  const [locks] = await managers(url, 1);
  return loop(namesFor('holdfast', level), level, async (name) => {
    const lock = await locks.acquire(name);
    await lock.release();
  });
}

async function openPairsOfDropIn(url, id) {
  return loopOfPeer(await openDropIn(id, 'dropIn', [url]), id);
}

function loopOfPeer(peer, id) {
  return loop(namesFor(id, 64), 64, async (name) => peer.release(name, await peer.acquire(name)));
}

async function openRequests(url) {
  const [locks] = await managers(url, 1);
  return loop(namesFor('request', 64), 64, (name) => locks.request(name, () => {}));
}

async function openShares(url) {
  const [locks] = await managers(url, 1);
  return loop(namesFor('share', 64), 64, async (name) => {
    const lock = await locks.acquire(name, { mode: 'shared' });
    await lock.release();
  });
}

/** Two managers take one lock in turn, so each release grants it to the other by a message. */
async function openHandoffs(url) {
  const both = await managers(url, 2);
  return async (units) => {
    let left = units;
    await Promise.all(
      both.map(async (locks) => {
        while (left > 0) {
          left -= 1;
          const lock = await locks.acquire('handoff');
          await lock.release();
        }
      }),
    );
    return units;
  };
}

async function openLinger(url) {
  const [locks] = await managers(url, 1, { linger: 1_000 });
  return loop(['linger'], 1, async (name) => {
    const lock = await locks.acquire(name);
    await lock.release();
  });
}

async function managers(url, count, options = {}) {
  const { connect } = await import('../../dist/index.mjs');
  const each = () => connect(url, { ttl: TTL_MS, commandTimeout: TIMEOUT_MS, ...options });
  return Promise.all(Array.from({ length: count }, each));
}

/** Runs `unit` for one name after the other, `level` at a time. */
function loop(names, level, unit) {
  return async (units) => {
    let left = units;
    const turns = async (slot) => {
      for (let index = slot; left > 0; index = (index + level) % names.length) {
        left -= 1;
        await unit(names[index]);
      }
    };
    await Promise.all(Array.from({ length: level }, (_, slot) => turns(slot)));
    return units;
  };
}
