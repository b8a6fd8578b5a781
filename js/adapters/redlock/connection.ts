/** The connection of holdfast beside a service's own clients. It ends with them. */

import { EventEmitter } from 'node:events';
import { isUnreachable } from '../../base/errors.js';
import type { Whereabouts } from '../../connect/clients/read-clients.js';
import { connect } from '../../connect/connect.js';
import type { LockManager } from '../../manager/manager.js';
import { areReachable } from './by-value.js';
import type { Client } from './votes.js';

type Listener = (error: Error) => void;

/** The event of a client that ends. */
interface Ending {
  once?(event: 'end', listener: () => void): unknown;
}

/**
 * One connection for the same clients, however many `Redlock`s use them: some services make one for every
 * request.
 *
 * @internal
 */
export class Connection {
  readonly #clients: readonly Client[];
  #manager: Promise<LockManager> | undefined;
  /** The listeners for servers that are lost. */
  readonly #listeners = new Set<WeakRef<Listener>>();
  readonly #gone = new FinalizationRegistry<WeakRef<Listener>>((each) => {
    this.#listeners.delete(each);
  });
  /** The routines that run under a lock. */
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

  /** The manager, connected on first use. The next call tries again if it could not connect. */
  open(where: () => Whereabouts): Promise<LockManager> {
    this.#manager ??= this.#connect(where());
    return this.#manager;
  }

  /**
   * As `open`. If no server can be reached, waits as long as the service's own clients do: a service may start before its
   * servers. `key` is one that the service may read.
   */
  async openWhenUp(where: () => Whereabouts, key: string): Promise<LockManager> {
    try {
      return await this.open(where);
    } catch (error) {
      if (!isUnreachable(error) || !(await areReachable(new Set(this.#clients), key))) throw error;
      return this.open(where);
    }
  }

  /** Calls `listener` when a server is lost, as long as the listener's owner is alive. */
  listen(listener: Listener): void {
    const reference = new WeakRef(listener);
    this.#listeners.add(reference);
    this.#gone.register(listener, reference);
  }

  async #connect({ target, options }: Whereabouts): Promise<LockManager> {
    try {
      const manager = await connect(target, options);
      // Not by the manager's own `on`, which would keep it alive: it may be collected with the clients and their users.
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

  /** Ends the connection as soon as the clients that are left are no majority. */
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

  /** Runs `routine`. The connection does not end before it. */
  async during<T>(routine: () => Promise<T>): Promise<T> {
    // The routine is registered first: its first line may end the connection.
    const running = Promise.resolve().then(routine);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Ends the connection as soon as no routine runs. Locks are left to expire. */
  async close(): Promise<void> {
    const manager = this.#manager;
    this.#manager = undefined;
    const end = async () => (await manager?.catch(() => undefined))?.close();
    if (this.#running.size === 0) return end();
    // Not awaited: the caller may be one of the routines.
    void Promise.allSettled(this.#running).then(end);
  }
}

const connections = new WeakMap<Client, readonly Connection[]>();
