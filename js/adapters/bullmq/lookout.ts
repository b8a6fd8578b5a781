/** Looks at the first jobs of all keys from time to time: no process is told that a job was removed, or failed by BullMQ. */

import type { LockManager } from '../../manager/manager.js';
import { lockName } from './names.js';
import { holdOf, type Settings } from './options.js';
import type { Orders } from './orders.js';

/** How often the first jobs of a key are looked at, by one of all workers. */
const INTERVAL_MS = 2_000;
/** How often a worker asks whose turn it is to be looked at. */
const PAUSE_MS = 1_000;

/** The timers of the process: the fake ones that a test puts in their place may have no `unref`. */
const { clearInterval, setInterval } = globalThis;

/** @internal */
export class Lookout {
  readonly #locks: LockManager;
  readonly #settings: Settings;
  /** The queues whose keys this process looks at. One queue, unless a processor serves several. */
  readonly #queues = new Map<
    string,
    { orders: Orders; isLooking: boolean; timer: NodeJS.Timeout }
  >();

  constructor(locks: LockManager, settings: Settings) {
    this.#locks = locks;
    this.#settings = settings;
  }

  /** Looks at the keys of a queue until none has jobs that wait, or the worker is closed. */
  watch(orders: Orders, queue: string): void {
    const watched = this.#queues.get(queue);
    if (watched !== undefined) {
      // The worker of a former job may have been closed since.
      watched.orders = orders;
      return;
    }
    const timer = setInterval(() => void this.#look(queue), PAUSE_MS).unref();
    this.#queues.set(queue, { orders, isLooking: false, timer });
  }

  async #look(queue: string): Promise<void> {
    const watched = this.#queues.get(queue);
    if (watched === undefined || watched.isLooking) return;
    watched.isLooking = true;
    try {
      const { orders } = watched;
      if (orders.isClosing) return this.#end(queue);
      const { keys, any } = await orders.due(INTERVAL_MS);
      if (!any) return this.#end(queue);
      for (const key of keys) await this.#lookAt(orders, queue, key);
    } catch {
      // The next look may succeed.
    } finally {
      watched.isLooking = false;
    }
  }

  async #lookAt(orders: Orders, queue: string, key: string): Promise<void> {
    const { limit } = this.#settings;
    let idle = await orders.idleOf(key, limit);
    while (await orders.removeFinished(key, idle, limit)) idle = await orders.idleOf(key, limit);
    const asleep = await orders.delayedOf(idle);
    if (asleep.length === 0) return;
    // While other code has the lock, a process waits for that, and wakes the first then.
    const lock = await this.#locks.tryAcquire(lockName(queue, key), holdOf(this.#settings));
    if (lock === null) return;
    await lock.release();
    for (const id of asleep) await orders.wake(id);
  }

  #end(queue: string): void {
    clearInterval(this.#queues.get(queue)?.timer);
    this.#queues.delete(queue);
  }
}
