/** The connection of holdfast that stands beside a service's own clients, as long as they do. */

import { EventEmitter } from 'node:events';
import { connect } from '../api/connect.js';
import type { LockManager } from '../api/manager.js';
import type { Whereabouts } from './clients.js';
import type { Client } from './votes.js';

type Listener = (error: Error) => void;

/** What tells of the end of a client. */
interface Ending {
  once?(event: 'end', listener: () => void): unknown;
}

/**
 * One connection for the same clients, however many `Redlock`s they are given to: some services make
 * one for every request.
 *
 * @internal
 */
export class Connection {
  readonly #clients: readonly Client[];
  #manager: Promise<LockManager> | undefined;
  /** Who is told of servers that are lost. */
  readonly #listeners = new Set<WeakRef<Listener>>();
  readonly #gone = new FinalizationRegistry<WeakRef<Listener>>((each) => {
    this.#listeners.delete(each);
  });
  /** What runs under a lock. */
  readonly #running = new Set<Promise<unknown>>();

  private constructor(clients: readonly Client[]) {
    this.#clients = clients;
  }

  static of(clients: readonly Client[]): Connection {
    const [first] = clients as [Client];
    const known = connections.get(first) ?? [];
    const same = known.find((each) => each.#isOf(clients));
    if (same !== undefined) return same;
    const connection = new Connection(clients);
    connections.set(first, [...known, connection]);
    return connection;
  }

  #isOf(clients: readonly Client[]): boolean {
    const all = this.#clients;
    return all.length === clients.length && all.every((client, i) => client === clients[i]);
  }

  /** The manager, connected on first use. One that could not connect is tried anew. */
  open(where: () => Whereabouts): Promise<LockManager> {
    this.#manager ??= this.#connect(where());
    return this.#manager;
  }

  /** Has `listener` called, as long as its owner lives, when a server is lost. */
  listen(listener: Listener): void {
    const reference = new WeakRef(listener);
    this.#listeners.add(reference);
    this.#gone.register(listener, reference);
  }

  async #connect({ target, options }: Whereabouts): Promise<LockManager> {
    try {
      const manager = await connect(target, options);
      // Past the manager's own `on`, which would keep it alive: it may go with the clients and all that use them.
      EventEmitter.prototype.on.call(manager, 'disconnect', (error: Error) => this.#tell(error));
      this.#watch();
      return manager;
    } catch (error) {
      this.#manager = undefined;
      throw error;
    }
  }

  #tell(error: Error): void {
    for (const each of this.#listeners) each.deref()?.(error);
  }

  /** It ends with the clients: as soon as those that are left would be no majority. */
  #watch(): void {
    const own = this.#manager;
    const ended = new Set<Client>();
    for (const client of this.#clients) {
      (client as Ending).once?.('end', () => {
        ended.add(client);
        const decided = ended.size * 2 >= this.#clients.length;
        if (decided && this.#manager === own) void this.close();
      });
    }
  }

  /** Runs `routine`: the connection does not end before it. */
  async during<T>(routine: () => Promise<T>): Promise<T> {
    // It may end the connection in its first line, and must be known by then.
    const running = Promise.resolve().then(routine);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Ends it, once no routine runs any more: at once if none does. Locks are left to their leases. */
  async close(): Promise<void> {
    const manager = this.#manager;
    this.#manager = undefined;
    const end = async () => (await manager?.catch(() => undefined))?.close();
    if (this.#running.size === 0) return end();
    // Not waited for: whoever ends it may be one of them.
    void Promise.allSettled(this.#running).then(end);
  }
}

const connections = new WeakMap<Client, readonly Connection[]>();
