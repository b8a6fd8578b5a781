/** What the suite is tried on, and the store inside the process. */

import type { ConnectOptions } from 'holdfast';
import { type ConnectTarget, connect, type LockManager } from '../../support/holdfast.js';

/** The argument of a behaviour: it opens managers that all use the same store. */
export interface Place {
  /** The name of the store in errors. */
  readonly label: string;
  /** The key of the counter from which the lock `{0}` gets its fences. */
  readonly counter: string;
  open(options?: ConnectOptions): Promise<LockManager>;
}

/** The argument of `connect` for a store, and its name in errors. */
export interface Where {
  readonly target: ConnectTarget;
  readonly label: string;
  /** That of `Place`; by default the counter of a server. */
  readonly counter?: string;
  /** The options of every manager there. */
  readonly options?: ConnectOptions;
}

/** A kind of store, on which every behaviour is tried. */
export interface Host {
  /** With its version. */
  readonly name: string;
  /** Whether a behaviour is promised there; everything is, unless told otherwise. */
  promises?(title: string): boolean;
  start(): Promise<void>;
  /** The place of the next behaviour, without the keys of earlier ones. */
  next(): Where;
  /** Wraps a manager before a behaviour gets it. */
  wrap?(manager: LockManager): LockManager;
  /** Waits until nothing is left but fences. Not every store can be checked. */
  quiet?(): Promise<void>;
  stop(): Promise<void>;
}

/** One behaviour's stay on a host: the managers that it opens are closed when it has ended. */
export class Visit implements Place {
  readonly label: string;
  readonly counter: string;
  readonly #target: ConnectTarget;
  readonly #options: ConnectOptions;
  readonly #host: Host;
  readonly #opened: LockManager[] = [];

  constructor(host: Host) {
    this.#host = host;
    const { target, label, counter = 'holdfast:fence', options = {} } = host.next();
    this.#target = target;
    this.#options = options;
    this.label = label;
    this.counter = counter;
  }

  async open(options: ConnectOptions = {}): Promise<LockManager> {
    const connected = await connect(this.#target, { ...this.#options, ...options });
    const manager = this.#host.wrap?.(connected) ?? connected;
    this.#opened.push(manager);
    return manager;
  }

  async end(): Promise<void> {
    await Promise.all(this.#opened.map((manager) => manager.close()));
  }
}

/** The store inside this process. It is always there. */
export class EmbeddedHost implements Host {
  readonly name = 'the embedded store';
  #visits = 0;

  async start(): Promise<void> {}

  next(): Where {
    this.#visits += 1;
    const target = `memory:visit-${this.#visits}`;
    return { target, label: target };
  }

  async stop(): Promise<void> {}
}

/** Waits until messages reach the waiter of a lock, where they need a subscription that is made for it. */
export const awaitSubscription = new WeakMap<LockManager, (name: string) => Promise<void>>();
