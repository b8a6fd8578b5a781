/** The connection of holdfast beside a service's own clients. It ends with them. */

import { isUnreachable, LockClosedError } from '../../base/errors.js';
import { inDatabase, readClients } from '../../connect/clients/read-clients.js';
import type { LockManager } from '../../manager/manager.js';
import { areReachable } from './by-value.js';
import { Holds } from './holds.js';
import { Requests } from './requests.js';
import { SharedManager, type User } from './shared-manager.js';
import { statsOf } from './tally.js';
import type { Client, ExecutionStats } from './votes.js';

type Listener = (error: Error) => void;

/** The event of a client that ends. */
interface Ending {
  once?(event: 'end', listener: () => void): unknown;
  removeListener?(event: 'end', listener: () => void): unknown;
}

/** A manager that is connected. @internal */
export interface Open {
  readonly manager: LockManager;
  readonly requests: Requests;
  /** Aborted when the clients end. `requests` need no signal. */
  readonly ended: AbortSignal;
}

/** One use of a manager, from the first lock to the end of the clients. */
interface Use extends Open {
  readonly shared: SharedManager;
  readonly user: User;
  readonly holds: Holds;
  readonly end: AbortController;
}

/**
 * The connection for some clients, however many objects use them: some services make one for every request. Clients that lead
 * to the same place share a manager.
 *
 * @internal
 */
export class Connection {
  readonly #clients: readonly Client[];
  /** The database, if it may be another than that of the clients. */
  readonly #db: number | undefined;
  #opening: Promise<Use> | undefined;
  #use: Use | undefined;
  #holds = new Holds();
  #agreed: Promise<ExecutionStats> | undefined;
  /** Listens to the clients no more. */
  #unwatch = () => {};
  /** The listeners for servers that are lost. */
  readonly #listeners = new Set<WeakRef<Listener>>();
  readonly #gone = new FinalizationRegistry<WeakRef<Listener>>((each) => {
    this.#listeners.delete(each);
  });
  /** The routines that run under a lock. */
  readonly #running = new Set<Promise<unknown>>();

  private constructor(clients: readonly Client[], db: number | undefined) {
    this.#clients = clients;
    this.#db = db;
  }

  static of(clients: readonly Client[], db?: number): Connection {
    const [first] = clients as [Client];
    const known = connections.get(first);
    if (known !== undefined) {
      for (const each of known) if (each.#isOf(clients, db)) return each;
    }
    const connection = new Connection([...clients], db);
    // Without a client the first lock says so.
    if (Object(first) === first) connections.set(first, [...(known ?? []), connection]);
    return connection;
  }

  #isOf(clients: readonly Client[], db: number | undefined): boolean {
    const all = this.#clients;
    return (
      this.#db === db &&
      all.length === clients.length &&
      all.every((client, i) => client === clients[i])
    );
  }

  /** The manager, if it is connected: most locks need no promise of it. */
  get current(): Open | undefined {
    return this.#use;
  }

  /** The votes on every operation that has succeeded. */
  get agreed(): Promise<ExecutionStats> {
    this.#agreed ??= Promise.resolve(statsOf(new Set(this.#clients)));
    return this.#agreed;
  }

  /** The locks of the last use whose objects are told of a loss. */
  get holds(): Holds {
    return this.#holds;
  }

  /**
   * The manager, connected on first use. The next call tries again if it could not connect.
   *
   * @throws TypeError if a client does not reveal its connection, or if holdfast cannot connect in the same way.
   * @throws LockClosedError if so many of the clients have ended that the others are no majority.
   */
  open(): Promise<Open> {
    if (this.#opening !== undefined) return this.#opening;
    // As with the originals, whose commands fail then: what comes late in a shutdown must not take a lock.
    const ended = this.#clients.filter(isEnded).length;
    if (this.#areTooFew(ended)) return Promise.reject(new LockClosedError(ENDED));
    return this.#begin();
  }

  /** Whether the clients are no majority without those that have ended. */
  #areTooFew(ended: number): boolean {
    return ended * 2 >= this.#clients.length;
  }

  #begin(): Promise<Open> {
    const opening = this.#connect();
    this.#opening = opening;
    // The clients may end before the connection is made.
    this.#unwatch = this.#watch();
    opening.then(
      (use) => {
        if (this.#opening !== opening) return;
        this.#use = use;
        this.#holds = use.holds;
        collected.register(this, use, this);
      },
      () => {
        if (this.#opening === opening) this.#forget();
      },
    );
    return opening;
  }

  /**
   * As `open`. If no server can be reached, waits as long as the service's own clients do: a service may start before its
   * servers. `key` is one that the service may read.
   */
  async openWhenUp(key: string): Promise<Open> {
    try {
      return await this.open();
    } catch (error) {
      if (!isUnreachable(error) || !(await areReachable(new Set(this.#clients), key))) throw error;
      return this.open();
    }
  }

  /** Throws if the connection of `open` was closed meanwhile; its manager may go on for other clients. */
  checkOpen(open: Open | undefined): void {
    if (open !== this.#use) throw new LockClosedError(ENDED);
  }

  /** Calls `listener` when a server is lost, as long as the listener's owner is alive. */
  listen(listener: Listener): void {
    const reference = new WeakRef(listener);
    this.#listeners.add(reference);
    this.#gone.register(listener, reference);
  }

  async #connect(): Promise<Use> {
    const holds = new Holds();
    // The manager of others must not keep a connection from being collected whose clients nobody uses any more.
    const connection = new WeakRef(this);
    // One for each use: that of before may leave the manager after the next has joined it.
    const user: User = {
      lost: (lock, error) => holds.lose(lock, error),
      disconnected(error) {
        const alive = connection.deref();
        if (alive !== undefined) alive.#disconnected(error);
      },
    };
    const shared = SharedManager.join(inDatabase(readClients(this.#clients), this.#db), user);
    const manager = await shared.manager;
    const end = new AbortController();
    const requests = new Requests(manager);
    return { shared, user, holds, manager, requests, end, ended: end.signal };
  }

  #disconnected(error: Error): void {
    for (const each of this.#listeners) each.deref()?.(error);
  }

  /** Ends the connection as soon as the clients that are left are no majority. Answers how to watch no more. */
  #watch(): () => void {
    const ended = new Set<Client>();
    const listeners = this.#clients.map((client) => {
      const listener = () => {
        ended.add(client);
        closed.add(client);
        if (this.#areTooFew(ended.size)) void this.close();
      };
      (client as Ending | null)?.once?.('end', listener);
      return () => (client as Ending | null)?.removeListener?.('end', listener);
    });
    return () => {
      for (const remove of listeners) remove();
    };
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

  /** Ends the connection as soon as no routine runs. Locks that are not renewed are left to expire. */
  async close(): Promise<void> {
    const opening = this.#opening;
    this.#forget();
    const end = async () => {
      const use = await opening?.catch(() => undefined);
      if (use !== undefined) await leave(use);
    };
    if (this.#running.size === 0) return end();
    // Not awaited: the caller may be one of the routines.
    void Promise.allSettled(this.#running).then(end);
  }

  /** The next call opens a connection. */
  #forget(): void {
    this.#unwatch();
    collected.unregister(this);
    this.#opening = undefined;
    this.#use = undefined;
  }
}

async function leave({ shared, user, holds, manager, requests, end }: Use): Promise<void> {
  end.abort(new LockClosedError(ENDED));
  manager.cancelPrepared(requests.all);
  const all = holds.take();
  // These locks end as with their manager, which releases those that are renewed.
  const renewed = all.filter(({ isRefreshed }) => isRefreshed).map(({ held }) => held);
  for (const hold of all) hold.lose(undefined);
  if (await shared.leave(user)) return;
  await Promise.allSettled(renewed.map((lock) => lock?.release()));
}

/** Ends the uses of connections that were collected before their clients have ended. */
const collected = new FinalizationRegistry<Use>((use) => void leave(use));

/** The clients that have been seen to end. */
const closed = new WeakSet<Client>();

/** Whether a client has ended, and is not connected again. One of node-redis that was never connected may be before its locks. */
function isEnded(client: Client): boolean {
  const { status, isOpen } = (client ?? {}) as {
    readonly status?: unknown;
    readonly isOpen?: unknown;
  };
  return status === 'end' || (isOpen === false && closed.has(client));
}

const ENDED = "the service's clients were closed; locks need clients that are open";

const connections = new WeakMap<Client, readonly Connection[]>();
