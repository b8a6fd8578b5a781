// The rounds: all participants in turn, in a new order each time, so that other work of the machine
// affects all of them alike.

import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from '../child.mjs';
import { shuffled } from '../samples.mjs';
import { namesFor } from './measure.mjs';

/** The pause in which the participant before comes to rest. */
const PAUSE_MS = 20;
/** The longest time until a lock that was given up is free. */
const SETTLED_MS = 1_000;

class Participant extends Child {
  constructor(peer) {
    super('pairs/worker.mjs', peer.id);
    this.peer = peer;
  }
}

/** Starts all participants. One that cannot start is left out, and listed in `failures`. */
export async function openAll(peers, { url, admin, failures }) {
  const children = peers.map((peer) => new Participant(peer));
  for (const child of children) {
    await attempt(child, 'cannot be loaded', failures, () => child.ask('open', url));
    await attempt(child, 'misbehaved', failures, () => prove(child, admin));
  }
  return children;
}

/** All rounds; the first one only warms up. Returns the runs as `{ id, level, round, … }`. */
export async function runRounds(children, { levels, rounds, ms, admin, failures, onRound }) {
  const samples = [];
  for (let round = 0; round <= rounds; round++) {
    onRound(round);
    for (const level of levels) {
      for (const child of shuffled(children)) {
        await sleep(PAUSE_MS);
        await attempt(child, 'misbehaved', failures, async () => {
          const result = await runOnce(child, { level, ms, admin });
          if (round > 0) samples.push({ id: child.peer.id, level, round, ...result });
        });
      }
    }
  }
  return samples;
}

/** A participant that fails once does not run again. */
async function attempt(child, how, failures, task) {
  const { id } = child.peer;
  if (failures.has(id)) return;
  try {
    await task();
  } catch (error) {
    failures.set(id, { how, message: error.message });
    child.end();
  }
}

/** Checks the key of one name from outside; also proves that the check after each run sees something. */
async function prove(child, admin) {
  if (child.peer.key === null) return;
  const [name] = namesFor(child.pid, 1);
  const key = child.peer.key(name);
  await child.ask('hold', name);
  if ((await admin.exists([key])) !== 1) throw new Error('acquired, but the key does not exist');
  await child.ask('free', name);
  if ((await leftOf(admin, [key])) !== 0) throw new Error('released, but the key still exists');
}

/** How many of these keys stay. Those of releases that nobody awaits go soon. */
async function leftOf(admin, keys) {
  const end = performance.now() + SETTLED_MS;
  for (;;) {
    const left = await admin.exists(keys);
    if (left === 0 || performance.now() > end) return left;
    await sleep(PAUSE_MS);
  }
}

async function runOnce(child, { level, ms, admin }) {
  const before = await admin.work();
  const result = await child.ask('run', { level, ms }, ms);
  const after = await admin.work();
  const per = (what) => (after[what] - before[what]) / result.pairs;
  const { key } = child.peer;
  const left = key === null ? 0 : await leftOf(admin, namesFor(child.pid, level).map(key));
  if (left !== 0) throw new Error(`${left} locks were still held after a run`);
  return { ...result, serverCpu: per('cpu'), commands: per('commands'), bytes: per('bytes') };
}
