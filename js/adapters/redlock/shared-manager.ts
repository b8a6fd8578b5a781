/** Managers that several lists of clients share, since they lead to the same place. */

import { EventEmitter } from 'node:events';
import type { LockLostError } from '../../base/errors.js';
import type { Whereabouts } from '../../connect/clients/read-clients.js';
import { connect } from '../../connect/connect.js';
import type { Lock } from '../../lock/lock.js';
import type { LockManager } from '../../manager/manager.js';

/** One that uses a manager. @internal */
export interface User {
  /** A renewed lock is lost, maybe that of another user. */
  lost(lock: Lock, error: LockLostError): void;
  /** A server is lost. */
  disconnected(error: Error): void;
}

/** All that may be in use. Its manager is collected with the last user. */
const shared = new Set<WeakRef<SharedManager>>();

/**
 * One connection, however many clients a service has made for a server: a module often has a client of its own.
 *
 * @internal
 */
export class SharedManager {
  readonly #where: Whereabouts;
  readonly manager: Promise<LockManager>;
  readonly #users = new Set<User>();

  private constructor(where: Whereabouts) {
    this.#where = where;
    this.manager = this.#connect();
  }

  /** Opens a connection to a place, or joins one. */
  static join(where: Whereabouts, user: User): SharedManager {
    for (const reference of shared) {
      const known = reference.deref();
      if (known === undefined) shared.delete(reference);
      else if (isSame(known.#where, where)) return known.#joined(user);
    }
    const made = new SharedManager(where);
    const reference = new WeakRef(made);
    shared.add(reference);
    // The next one tries again. No unhandled rejection: each user awaits the same promise.
    made.manager.catch(() => shared.delete(reference));
    return made.#joined(user);
  }

  #joined(user: User): this {
    this.#users.add(user);
    return this;
  }

  async #connect(): Promise<LockManager> {
    const manager = await connect(this.#where.target, this.#where.options);
    const lost = (lock: Lock, error: LockLostError) => {
      for (const user of this.#users) user.lost(lock, error);
    };
    const disconnected = (error: Error) => {
      for (const user of this.#users) user.disconnected(error);
    };
    // Not by the manager's own `on`, which would keep it alive: it may be collected with the clients and their users.
    EventEmitter.prototype.on.call(manager, 'lost', lost);
    EventEmitter.prototype.on.call(manager, 'disconnect', disconnected);
    return manager;
  }

  /** Closes the connection after its last user. Answers whether this was the last. */
  async leave(user: User): Promise<boolean> {
    this.#users.delete(user);
    if (this.#users.size > 0) return false;
    for (const reference of shared) if (reference.deref() === this) shared.delete(reference);
    await (await this.manager.catch(() => undefined))?.close();
    return true;
  }
}

/**
 * Whether two places have the same parts. What is no plain object, such as a source of credentials, is the same only if it is
 * the same object: it may have parts that cannot be seen.
 */
function isSame(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (!isPlain(a) || !isPlain(b)) return false;
  const [ofA, ofB] = [Object.keys(a), Object.keys(b)];
  if (Array.isArray(a) !== Array.isArray(b) || ofA.length !== ofB.length) return false;
  return ofA.every((key) => Object.hasOwn(b, key) && isSame(a[key], b[key]));
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  return Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
}
