/** The turn of one job among those of its key. */

import type { Job } from 'bullmq';
import { Orders, type Standing } from './orders.js';
import { notActive } from './queue-of.js';

/** @internal */
export class Turn {
  readonly orders: Orders;
  readonly #job: Job;
  readonly #key: string;
  readonly #limit: number;
  readonly #token: string | undefined;

  private constructor(
    orders: Orders,
    job: Job,
    key: string,
    limit: number,
    token: string | undefined,
  ) {
    this.orders = orders;
    this.#job = job;
    this.#key = key;
    this.#limit = limit;
    this.#token = token;
  }

  static async of(job: Job, key: string, limit: number, token: string | undefined): Promise<Turn> {
    return new Turn(await Orders.of(job), job, key, limit, token);
  }

  /** The name of the job's lock. */
  get lock(): string {
    return this.orders.lockOf(this.#key);
  }

  /** Puts the job into the order. Rejects if BullMQ has given it to another worker, or ended it. */
  async enter(): Promise<Standing> {
    const standing = await this.orders.enter(this.#key, this.#job, this.#token, this.#limit);
    if (standing !== undefined) return standing;
    throw notActive(this.#job);
  }

  /** Whether the job is among the first of its key. */
  isFirst(): Promise<boolean> {
    return this.orders.isFirst(this.#key, this.#id, this.#limit);
  }

  /** Takes the job out of the order, and wakes the one whose turn it is by that. */
  leave(): Promise<void> {
    return this.orders.leave(this.#key, this.#id, this.#limit);
  }

  /** Has the job start again now. */
  wake(): Promise<void> {
    return this.orders.wake(this.#id);
  }

  /** Removes those of some jobs of the key that have ended; answers whether any had. */
  removeFinished(ids: readonly string[]): Promise<boolean> {
    return this.orders.removeFinished(this.#key, ids, this.#limit);
  }

  get #id(): string {
    return this.#job.id ?? '';
  }
}
