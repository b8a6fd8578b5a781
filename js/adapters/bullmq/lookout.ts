/** Looks at the first jobs of all keys from time to time: no process is told that a job was removed, or failed by BullMQ. */

import type { LockManager } from '../../manager/manager.js';
import { holdOf, type Settings } from './options.js';
import type { Orders } from './orders.js';

/** How often a process asks which keys are to be looked at. */
const PAUSE_MS = 1_000;
/** How often it then does not ask after a look that failed: the keys that it has chosen are due for others meanwhile. */
const RESTS = 3;

/** The timers of the process: the fake ones that a test puts in their place may have no `unref`. */
const { clearInterval, setInterval } = globalThis;

/** A queue whose keys this process looks at. */
interface Watched {
  /** The orders as its workers in this process reach them. */
  readonly workers: Set<Orders>;
  readonly timer: NodeJS.Timeout;
  isLooking: boolean;
  /** Whether a job has entered an order since the last look began. */
  isNew: boolean;
  rests: number;
}

/** @internal */
export class Lookout {
  readonly #locks: LockManager;
  readonly #settings: Settings;
  /** The queues, by the names of their orders. A processor may serve several. */
  readonly #queues = new Map<string, Watched>();

  constructor(locks: LockManager, settings: Settings) {
    this.#locks = locks;
    this.#settings = settings;
  }

  /** Looks at the keys of a queue, one of which a job has just entered, until none has jobs or all workers here are closed. */
  watch(orders: Orders): void {
    const { name } = orders;
    let watched = this.#queues.get(name);
    if (watched === undefined) {
      const timer = setInterval(() => void this.#look(name), PAUSE_MS).unref();
      watched = { workers: new Set(), timer, isLooking: false, isNew: true, rests: 0 };
      this.#queues.set(name, watched);
    }
    watched.workers.add(orders);
    watched.isNew = true;
  }

  async #look(name: string): Promise<void> {
    const watched = this.#queues.get(name);
    if (watched === undefined || watched.isLooking) return;
    for (const each of watched.workers) if (each.isClosing) watched.workers.delete(each);
    const [orders] = watched.workers;
    if (orders === undefined) return this.#end(name);
    if (watched.rests > 0) {
      watched.rests -= 1;
      return;
    }
    watched.isLooking = true;
    watched.isNew = false;
    try {
      const { keys, any } = await orders.due();
      // A job that has entered meanwhile counts on this look.
      if (!any && !watched.isNew) return this.#end(name);
      for (const key of keys) await this.#lookAt(orders, key);
    } catch {
      watched.rests = RESTS;
    } finally {
      watched.isLooking = false;
    }
  }

  async #lookAt(orders: Orders, key: string): Promise<void> {
    const { limit } = this.#settings;
    let idle = await orders.idleOf(key, limit);
    while (await orders.removeFinished(key, idle, limit)) idle = await orders.idleOf(key, limit);
    const asleep = await orders.delayedOf(idle);
    if (asleep.length === 0) return;
    // While other code has the lock, a process waits for that, and wakes the first then.
    const lock = await this.#locks.tryAcquire(orders.lockOf(key), holdOf(this.#settings));
    if (lock === null) return;
    await lock.release();
    for (const id of asleep) await orders.wake(id);
  }

  #end(name: string): void {
    clearInterval(this.#queues.get(name)?.timer);
    this.#queues.delete(name);
  }
}
