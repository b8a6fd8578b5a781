/** A process that requests locks of all kinds at random, and records its holds. Ordered by `contender.ts`. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Dice } from './dice.js';
import { type HeldLock, type HoldRequest, now, type Recorded, type Scribe } from './history.js';
import { holdfast, type Lock, type LockManager, type LockSet } from './holdfast.js';
import { guardedRead, guardedStep, plainStep } from './ledger.js';

/** The requested locks and their places. */
export interface Roam {
  readonly names: readonly string[];
  /** The number of concurrent callers. */
  readonly tasks: number;
  /** The longest lease, in ms. */
  readonly ttl: number;
  /** The wait of patient callers, in ms. */
  readonly wait: number;
  /** No process is stopped or killed, so that the lock alone protects the stores. */
  readonly peaceful?: boolean;
  /** The share of holders that hold for up to two leases, from 0 to 1; 0.05 by default. */
  readonly lingering?: number;
  /** Nothing but exclusive locks: a quorum has no others. */
  readonly alone?: boolean;
  /** The store does not check fences, to show their use. */
  readonly unfenced?: boolean;
}

/** The targets. */
export interface Ground extends Roam {
  readonly locks: LockManager;
  readonly recorder: Scribe;
  readonly dice: Dice;
  /** Records an object that stands for a lock, which may be lost. */
  readonly remember: (lock: Lock, recorded: Recorded) => void;
}

export type Taken = Lock | LockSet;
type Names = string | string[];
type Options = { ttl: number; label: string; renew: boolean; mode?: 'shared'; limit?: number };

/** Makes one request; answers its outcome: `ok`, `refused`, `cancelled` or the code of an error. */
export async function roam(ground: Ground, way = ground.dice.oneOf(WAYS)): Promise<string> {
  const options = anyOptions(ground);
  try {
    return await way(ground, anyNames(ground), options);
  } catch (error) {
    const { code, name } = error as { code?: unknown; name?: string };
    if (name === 'TimeoutError') return 'cancelled';
    return typeof code === 'string' ? code : String((error as Error).stack);
  }
}

/** One way to request locks. */
export type Way = (ground: Ground, names: Names, options: Options) => Promise<string>;

const patiently: Way = async (ground, names, options) => {
  const asked = now();
  const { wait } = ground;
  const taken = await ground.locks.acquire(names as string, { ...options, wait });
  return useAndRelease(ground, taken, requestOf(asked, options));
};

const hastily: Way = async (ground, ...rest) => {
  try {
    return await patiently({ ...ground, wait: ground.dice.below(30) }, ...rest);
  } catch (error) {
    // So short a wait may end ahead of the answer.
    if (error instanceof holdfast.LockConnectionError) return 'unanswered';
    throw error;
  }
};

const once: Way = async (ground, names, options) => {
  const asked = now();
  const taken = await ground.locks.tryAcquire(names as string, options);
  if (taken === null) return 'refused';
  return useAndRelease(ground, taken, requestOf(asked, options));
};

const untilCancelled: Way = async (ground, names, options) => {
  const asked = now();
  const more = {
    ...options,
    wait: ground.wait,
    signal: AbortSignal.timeout(1 + ground.dice.below(40)),
  };
  const taken = await ground.locks.acquire(names as string, more);
  return useAndRelease(ground, taken, requestOf(asked, options));
};

const onRequest: Way = async (ground, names, options) => {
  const asked = now();
  const more = { ...options, wait: ground.wait };
  return ground.locks.request(names as string, more, async (taken) => {
    await use(ground, taken, requestOf(asked, options));
    return 'ok';
  });
};

/** The usual ways; one that is listed more often is chosen more often. */
export const WAYS: readonly Way[] = [
  patiently,
  patiently,
  patiently,
  onRequest,
  onRequest,
  once,
  hastily,
  untilCancelled,
];

export async function useAndRelease(
  ground: Ground,
  taken: Taken,
  request: HoldRequest,
): Promise<string> {
  try {
    await use(ground, taken, request);
  } finally {
    await taken.release();
  }
  return 'ok';
}

/** The work of a holder, until right before its release. */
export async function use(ground: Ground, taken: Taken, request: HoldRequest): Promise<void> {
  const { dice, recorder } = ground;
  const several = 'fences' in taken;
  const told = several ? { ...request, several } : request;
  const recorded = partsOf(taken).map((part) => recorder.begin(part, told));
  if (!several) ground.remember(taken, recorded[0] as Recorded);
  try {
    if (!request.shared) await write(ground, recorded);
    if (dice.chance(0.2)) await taken.extend(ground.ttl);
    if (!request.shared && ground.alone !== true && dice.chance(0.3)) {
      for (const each of recorded) recorder.downgrade(each);
      await recorder.flush();
      await taken.downgrade();
    }
    if (taken.mode === 'shared') {
      // A store without a check of fences promises nothing to readers.
      if (ground.unfenced === true) await work(ground);
      else await read(ground, recorded);
    } else {
      await work(ground);
      // As a process does that was stopped right after a check of the lock.
      await write(ground, recorded);
    }
  } finally {
    for (const each of recorded) recorder.end(each);
    // Before the release: a process that is killed after it must not seem to hold.
    await recorder.flush();
  }
}

async function write(
  { recorder, peaceful, unfenced }: Ground,
  recorded: readonly Recorded[],
): Promise<void> {
  for (const each of recorded) {
    const { name, fence } = each.lock;
    await guardedStep(recorder.redis, name, fence, unfenced);
    // Without a check of the fence this is for processes that cannot be stopped after the check of the lock.
    if (peaceful === true && each.check()) await plainStep(recorder.redis, name);
  }
}

/** The data that a holder of a share reads twice did not change in between. */
async function read(ground: Ground, recorded: readonly Recorded[]): Promise<void> {
  const { redis } = ground.recorder;
  const look = () =>
    Promise.all(recorded.map(({ lock }) => guardedRead(redis, lock.name, lock.fence)));
  const first = await look();
  await work(ground);
  for (const [i, second] of (await look()).entries()) {
    if (first[i] === undefined || second === undefined || first[i] === second) continue;
    throw new Error(`${first[i]} became ${second} under #${recorded[i]?.lock.fence}`);
  }
}

/** A pause in which faults may occur, now and then for longer than a lease. */
export function work({ dice, lingering = 0.05, peaceful, ttl }: Ground): Promise<unknown> {
  return sleep(dice.below(peaceful !== true && dice.chance(lingering) ? 2 * ttl : 10));
}

/** Of several locks each is one hold, as long as all are held. */
export function partsOf(taken: Taken): HeldLock[] {
  if (!('fences' in taken)) return [taken];
  return Object.entries(taken.fences).map(([name, fence]) => ({
    name,
    fence,
    get remaining() {
      return taken.remaining;
    },
  }));
}

export function requestOf(
  asked: number,
  { mode, limit }: { mode?: 'shared'; limit?: number },
): HoldRequest {
  const request = { asked, shared: mode === 'shared' };
  return limit === undefined ? request : { ...request, limit };
}

function anyOptions({ alone, dice, ttl, recorder }: Ground): Options {
  const kind = alone === true ? {} : dice.oneOf(KINDS);
  const renew = dice.chance(0.8);
  const lease = Math.max(50, ttl - dice.below(ttl / 2));
  return { ttl: lease, renew, label: recorder.who, ...kind };
}

const SHARED = { mode: 'shared' } as const;
const KINDS = [
  {},
  {},
  {},
  SHARED,
  SHARED,
  { ...SHARED, limit: 2 },
  { ...SHARED, limit: 3 },
] as const;

/** One name, or several in any order. */
function anyNames({ dice, names }: Ground): Names {
  if (dice.chance(0.75)) return dice.oneOf(names);
  return dice.shuffled(names).slice(0, 2 + dice.below(2));
}
