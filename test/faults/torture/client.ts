/** A process of the campaign: it requests locks at random, itself and in a thread, and gets faults on order. */

import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { now } from '../../support/history.js';
import { openOperations } from '../../support/holdfast.js';
import { serve } from '../../support/orders.js';
import { Roamer, type Setup } from './roamer.js';

let roamer: Roamer | undefined;
let running: Promise<void> | undefined;
let thread: Thread | undefined;
let closed = false;

/** A thread that roams as well, with a share of the tasks. */
class Thread {
  static #count = 0;
  readonly #worker: Worker;
  readonly who: string;
  /** How many operations it left open; none if it was terminated. */
  readonly ended: Promise<number>;

  constructor(readonly setup: Setup) {
    Thread.#count += 1;
    this.who = `${setup.who}.t${Thread.#count}`;
    const seed = setup.seed + Thread.#count;
    const plan = { ...setup.plan, tasks: 3 };
    const workerData: Setup = { ...setup, who: this.who, seed, plan };
    this.#worker = new Worker(join(__dirname, 'thread.js'), { workerData });
    this.ended = new Promise((resolve) => {
      let open = 0;
      this.#worker.on('message', (count: number) => {
        open = count;
      });
      this.#worker.once('exit', () => resolve(open));
    });
  }

  tell(order: 'calm' | 'halt'): void {
    this.#worker.postMessage(order);
  }

  async terminate(): Promise<void> {
    owner().journal.write({ death: { who: this.who, at: now() } });
    await this.#worker.terminate();
  }
}

const orders = {
  async open(setup: Setup): Promise<void> {
    roamer = await Roamer.open(setup);
    running = roamer.run();
    thread = new Thread(setup);
  },

  /** Terminates the thread in the middle of its operations, and starts another. */
  async terminate(): Promise<void> {
    const { setup } = owner();
    await thread?.terminate();
    thread = new Thread(setup);
  },

  /** Blocks the event loop for this number of ms. */
  block(ms: number): void {
    for (const end = performance.now() + ms; performance.now() < end; );
  },

  /** Closes the manager with all that it holds and waits for, and opens another. */
  reopen: () => owner().reopen(),

  /** From now on no operation may fail. */
  calm(): void {
    owner().calm();
    thread?.tell('calm');
  },

  /** The locks that this process, without its thread, was granted since it is calm. */
  granted: (): string[] => [...owner().journal.granted],

  /** Ends after the last request; answers the number of operations that are left open in the thread. */
  async halt(): Promise<number> {
    owner().halt();
    thread?.tell('halt');
    await running;
    return (await thread?.ended) ?? 0;
  },

  async close(): Promise<number> {
    await owner().close();
    closed = true;
    return openOperations();
  },
};

/** The orders of a process of the campaign. */
export type ClientOrders = typeof orders;

function owner(): Roamer {
  if (roamer === undefined) throw new Error('not open');
  return roamer;
}

serve(orders);
// A client that has closed ends by itself; the end of the parent ends every client.
process.once('disconnect', () => {
  if (!closed) process.exit(1);
});
