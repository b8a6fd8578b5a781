/**
 * A process that contends for locks and follows the orders of its parent, see `crew.ts`. It writes its
 * holds into the history.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Dice } from './dice.js';
import { type HoldRequest, now, type Recorded, Recorder } from './history.js';
import {
  type ConnectTarget,
  connect,
  type Lock,
  type LockManager,
  openOperations,
} from './holdfast.js';
import { guardedStep, plainStep } from './ledger.js';
import { lockByHand, type OldCode } from './old-code.js';
import { serve } from './orders.js';
import { partsOf, type Roam, requestOf, roam } from './roam.js';

const [who = '', ledgerUrl = ''] = process.argv.slice(2);
const recorder = new Recorder(who, ledgerUrl);
const managers: LockManager[] = [];
const held = new Map<number, { lock: Lock; recorded: Recorded }>();
const recordedOf = new WeakMap<Lock, Recorded>();
let count = 0;
let halted = false;

/** The longest watch. */
const WATCH_US = 20_000_000;

/** The options of `acquire` that a message can carry. */
interface LockRequest {
  readonly ttl?: number;
  readonly wait?: number;
  readonly maxHold?: number;
  readonly mode?: 'shared';
  readonly limit?: number;
}

interface Contest extends LockRequest {
  readonly name: string;
  /** Tasks of each manager. */
  readonly tasks: number;
  /** Rounds of each task; or until `halt`. */
  readonly rounds: number;
  /** Whether each holder uses the stores of the ledger. */
  readonly stores?: boolean;
  /** The additional work of each holder, in ms. */
  readonly work?: number;
  /** A process that is killed after a release must not seem to hold: the end is recorded before. */
  readonly killable?: boolean;
}

interface SetContest {
  readonly orders: string[][];
  readonly tasks: number;
  /** Rounds of each task. */
  readonly rounds: number;
  readonly wait: number;
}

interface Held {
  readonly id: number;
  readonly fence: number;
  /** When it had been acquired, by the clock of the history. */
  readonly at: number;
}

/**
 * The result of a contest for one process: its rounds by outcome, `ok` or the code of an error; that of a
 * release, whose lock was held all the same, begins with `release:`.
 */
type Tally = Record<string, number>;

const orders = {
  async open(target: ConnectTarget, count: number, options: object): Promise<void> {
    for (let i = 0; i < count; i++) {
      const manager = await connect(target, { clientName: who, ...options });
      manager.on('lost', (lock) => recordedOf.get(lock)?.lose(now()));
      managers.push(manager);
    }
  },

  /** Acquires a lock and keeps it. */
  async hold(name: string, request: LockRequest = {}): Promise<Held> {
    const asked = now();
    const lock = await manager(0).acquire(name, { label: who, ...request });
    const recorded = record(lock, requestOf(asked, request));
    const id = count++;
    held.set(id, { lock, recorded });
    return { id, fence: lock.fence, at: recorded.hold.begin };
  },

  async release(id: number): Promise<boolean> {
    const { lock, recorded } = get(id);
    held.delete(id);
    recorder.end(recorded);
    return lock.release();
  },

  async extend(id: number, ttl: number): Promise<number> {
    await get(id).lock.extend(ttl);
    return get(id).lock.remaining;
  },

  /**
   * Writes to both stores of the ledger without a check of the lock, as a process would that was paused
   * right after such a check. Answers whether the store that checks the fence accepted it.
   */
  async write(id: number): Promise<boolean> {
    const { lock } = get(id);
    await plainStep(recorder.redis, lock.name);
    return guardedStep(recorder.redis, lock.name, lock.fence);
  },

  isHeld(id: number): boolean {
    return get(id).lock.held;
  },

  /**
   * Reads `held` without pause until it is false. Answers when the last reading began that saw the
   * lock held, 0 if none did, and when the one ended that did not: this process may be stopped in the
   * middle of a reading, and before the first one.
   */
  watch(id: number): { held: number; lost: number } {
    const { lock } = get(id);
    let held = 0;
    for (const end = now() + WATCH_US; held < end; ) {
      const looked = now();
      if (!lock.held) return { held, lost: now() };
      held = looked;
    }
    throw new Error('it was never lost');
  },

  /** Takes and releases a lock in several tasks at a time, again and again. */
  async contend(contest: Contest): Promise<Tally> {
    const tally: Tally = {};
    halted = false;
    const tasks = managers.flatMap((each) =>
      Array.from({ length: contest.tasks }, () => runTask(each, contest, tally)),
    );
    await Promise.all(tasks);
    await recorder.flush();
    return tally;
  },

  /** Takes and releases several locks at a time, again and again, named in each of these orders in turn. */
  async sets({ orders, tasks, rounds, wait }: SetContest): Promise<Tally> {
    const tally: Tally = {};
    const task = async () => {
      for (let round = 0; round < rounds; round++) {
        const names = orders[round % orders.length] as string[];
        const ended = await takeSet(names, wait);
        tally[ended] = (tally[ended] ?? 0) + 1;
        // Otherwise it would take the rest of the rounds to tell.
        if (ended !== 'ok') return;
      }
    };
    await Promise.all(Array.from({ length: tasks }, task));
    await recorder.flush();
    return tally;
  },

  /** Requests locks of all kinds, until `halt`. */
  async roam(plan: Roam): Promise<Tally> {
    const tally: Tally = {};
    halted = false;
    const remember = (lock: Lock, recorded: Recorded) => void recordedOf.set(lock, recorded);
    const ground = { ...plan, locks: manager(0), recorder, dice: new Dice(), remember };
    const task = async () => {
      while (!halted) {
        const ended = await roam(ground);
        tally[ended] = (tally[ended] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: plan.tasks }, task));
    await recorder.flush();
    return tally;
  },

  /** Locks by hand, as code without holdfast does, until `halt`. Needs no manager. */
  async lockByHand(url: string, plan: OldCode): Promise<number> {
    halted = false;
    const count = await lockByHand(url, recorder, plan, () => halted);
    await recorder.flush();
    return count;
  },

  /** Ends all contests after the round under way. */
  halt(): void {
    halted = true;
  },

  stats: () => manager(0).stats(),

  /** Closes all managers; answers how many operations are still open. */
  async close(): Promise<number> {
    await Promise.all(managers.map((each) => each.close()));
    await recorder.flush();
    return openOperations();
  },
};

/** The orders of a contender. */
export type Orders = typeof orders;

async function runTask(locks: LockManager, contest: Contest, tally: Tally): Promise<void> {
  const { name, rounds, stores = false, work = 0, killable, tasks: _, ...request } = contest;
  for (let round = 0; round < rounds && !halted; round++) {
    let ended = 'ok';
    let step = '';
    try {
      const asked = now();
      const lock = await locks.acquire(name, { label: who, ...request });
      const recorded = record(lock, requestOf(asked, request));
      if (stores) await useStores(name, lock, recorded);
      if (work > 0) await sleep(work);
      recorder.end(recorded);
      if (killable === true) await recorder.flush();
      step = 'release:';
      await lock.release();
    } catch (error) {
      const { code } = error as { code?: string };
      ended = step + (code ?? String(error));
      if (code === 'ERR_LOCK_CLOSED') return;
    }
    tally[ended] = (tally[ended] ?? 0) + 1;
  }
}

async function takeSet(names: string[], wait: number): Promise<string> {
  try {
    const set = await manager(0).acquire(names, { label: who, wait });
    const recorded = partsOf(set).map((part) => recorder.begin(part));
    for (const each of recorded) recorder.end(each);
    return (await set.release()) ? 'ok' : 'lost';
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}

async function useStores(name: string, lock: Lock, recorded: Recorded): Promise<void> {
  await guardedStep(recorder.redis, name, lock.fence);
  if (recorded.check()) await plainStep(recorder.redis, name);
  recorded.check();
}

function record(lock: Lock, request: HoldRequest): Recorded {
  const recorded = recorder.begin(lock, request);
  recordedOf.set(lock, recorded);
  return recorded;
}

function manager(index: number): LockManager {
  const found = managers[index];
  if (found === undefined) throw new Error('not open');
  return found;
}

function get(id: number): { lock: Lock; recorded: Recorded } {
  const found = held.get(id);
  if (found === undefined) throw new Error(`no hold ${id}`);
  return found;
}

serve(orders);
process.once('disconnect', () => process.exit(0));
