/** Whether an object has its lock, and how it learns that it has it no more. */

import type { HeldLock } from '../../lock/held-lock.js';
import type { Connection } from '../redlock/connection.js';
import type { Permits } from './permits.js';
import { Refresher } from './refresher.js';
import { type Holder, type ServerLock, SharedHold } from './shared-hold.js';
import { ValueHold } from './value-hold.js';

/** The release of a lock that is not held. */
const NOT_HELD = Promise.resolve();

type Is =
  | 'free'
  /** Another process has acquired it, and this object is to take it over. */
  | 'external'
  /** The server counts it as held, the object does not: an acquire or a release has not ended. */
  | 'between'
  | 'held'
  /** Another object has released it. */
  | 'released'
  /** A subclass decides whether it is held, with a hold of this class or without. */
  | 'own';

/** The choices of an object about its lock. @internal */
export interface Choices {
  /** Whether the lock is to be refreshed. */
  readonly renew: boolean;
  /** When a refresh would find out that another object has released it, in ms. */
  readonly refreshInterval: number;
}

/**
 * The acts of a class, which its possessions call: one record for all objects, since some services make an object for each lock.
 *
 * @internal
 */
export interface Acts<Of> {
  /** Whether a subclass has its own way to acquire or to refresh the lock. */
  isReplaced(object: Of): boolean;
  /** Refreshes a lock that no manager renews. */
  refresh(object: Of): Promise<void>;
  /** A lock that is to be refreshed is lost. */
  onLost(object: Of, cause: Error | undefined): void;
}

/** @internal */
export class Possession<Of = unknown> implements Holder {
  readonly #object: Of;
  readonly #acts: Acts<Of>;
  readonly #choices: Choices;
  /** Made when it is first needed. */
  #refresher: Refresher | undefined;
  #is: Is;
  /** The state that an acquire or a release began in. */
  #before: 'free' | 'external' = 'free';
  #hold: SharedHold | undefined;
  /** Whether this object wants its hold refreshed. */
  #isRefreshed = false;
  /** Tells this object that another has released the lock, if it wanted that refreshed. */
  #timer: NodeJS.Timeout | undefined;

  constructor(isExternal: boolean, object: Of, acts: Acts<Of>, choices: Choices) {
    this.#object = object;
    this.#acts = acts;
    this.#choices = choices;
    this.#is = isExternal ? 'external' : 'free';
  }

  /** Whether the lock is held now. */
  get isAcquired(): boolean {
    return this.#is === 'own' || (this.#is === 'held' && this.#hold?.lock.held === true);
  }

  /** Whether the object has got it, and has not been told of its end. */
  get isBelieved(): boolean {
    const is = this.#is;
    return is === 'held' || is === 'own' || is === 'released';
  }

  /** Whether it is to be taken over. */
  get isExternal(): boolean {
    return this.#without() === 'external';
  }

  get hold(): SharedHold | undefined {
    return this.#hold;
  }

  /**
   * Has a lock that was just acquired; the caller of the acquire does not know it yet. `permits` count it, and have passed so
   * often.
   */
  begin(connection: Connection, lock: ServerLock, permits?: Permits, passes = 0): void {
    this.hold?.leave(this);
    this.#have(new SharedHold(connection, lock, this, permits, passes));
  }

  /** Has a lock beside the objects of this process that hold it. */
  async join(shared: SharedHold, take: () => Promise<HeldLock>): Promise<void> {
    this.#have(shared);
    try {
      await shared.takeOver(this, take);
    } catch (error) {
      this.#drop();
      throw error;
    }
  }

  /** The acquire has succeeded. The lock may have been lost since. */
  settle(): void {
    const { renew } = this.#choices;
    const { hold } = this;
    const isReplaced = this.#acts.isReplaced(this.#object);
    if (isReplaced) this.#become('own', hold, renew);
    else if (hold !== undefined) this.#become('held', hold, renew);
    else if (this.#is === 'external') this.#become('free');
    const isUnrenewed = !isReplaced && hold?.lock instanceof ValueHold;
    if (renew && (isUnrenewed || isReplaced)) this.#startRefresh();
    else this.#refresher?.stop();
  }

  #startRefresh(): void {
    const { refreshInterval } = this.#choices;
    const refresh = () => this.#acts.refresh(this.#object);
    this.#refresher ??= new Refresher(refreshInterval, refresh);
    this.#refresher.start();
  }

  /** Ends the refresh. The lock stays held. */
  async stopRefresh(): Promise<void> {
    this.#refresher?.stop();
    this.#endTimer();
    this.#isRefreshed = false;
    await this.hold?.settle();
  }

  /** A release begins: the object does not have the lock any more, but the hold is there to be released. */
  giveUp(): void {
    const { hold } = this;
    this.#before = 'free';
    this.#become('between', hold);
  }

  /** It is to be taken over again: its release has failed. */
  expect(): void {
    if (this.#is === 'free') this.#become('external');
    else if (this.#is === 'between') this.#before = 'external';
  }

  /** Releases what is held at the server. */
  release(): Promise<unknown> {
    const { hold } = this;
    this.#drop();
    return hold === undefined ? NOT_HELD : hold.release(this);
  }

  /** Leaves `hold` to expire, if it is still there. */
  leave(hold: SharedHold | undefined): void {
    if (hold === undefined || this.hold !== hold) return;
    this.#drop();
    hold.leave(this);
  }

  /** A refresh has found out that the lock is lost. */
  lose(cause: Error | undefined): void {
    const { hold } = this;
    const isTold = this.isRefreshed;
    this.#become(this.#without());
    hold?.leave(this);
    if (isTold) this.#acts.onLost(this.#object, cause);
  }

  /** Whether it wants the lock renewed. */
  get isRefreshed(): boolean {
    return this.#isRefreshed || this.#timer !== undefined;
  }

  /** The state that is left when a hold ends that the object does not believe to have. */
  #without(): 'free' | 'external' {
    const is = this.#is === 'between' ? this.#before : this.#is;
    return is === 'external' ? is : 'free';
  }

  /** The lock is lost; without a cause, by the end of the clients. */
  lost(cause: Error | undefined): void {
    if (this.#acts.isReplaced(this.#object)) {
      this.#drop();
      return;
    }
    const isTold = this.isRefreshed && cause !== undefined;
    this.#become(this.#without());
    if (isTold) this.#acts.onLost(this.#object, cause);
  }

  /** Another object has released it. */
  released(): void {
    const finds = this.isRefreshed && !this.#acts.isReplaced(this.#object);
    if (finds) this.#loseLater('another object released it by its identifier');
    else this.#drop();
  }

  /** Loses the lock when the next refresh would find out. */
  #loseLater(cause: string): void {
    const lose = () => this.lose(new Error(cause));
    this.#become('released');
    this.#timer = setTimeout(lose, this.#choices.refreshInterval).unref();
  }

  #have(hold: SharedHold): void {
    const { renew } = this.#choices;
    if (this.#is === 'own') this.#become('own', hold, renew);
    else if (this.isBelieved) this.#become('held', hold, renew);
    else {
      this.#before = this.#without();
      this.#become('between', hold, renew);
    }
  }

  /** Has no hold any more; the object is not told. */
  #drop(): void {
    if (this.#is === 'own') this.#hold = undefined;
    else if (this.#is === 'held') this.#become('released');
    else if (this.#is === 'between') this.#become(this.#without());
  }

  /** Changes the state. A lock that is not held is not refreshed. */
  #become(is: Is, hold?: SharedHold, isRefreshed = false): void {
    this.#endTimer();
    if (is !== 'held' && is !== 'own') this.#refresher?.stop();
    this.#is = is;
    this.#hold = hold;
    this.#isRefreshed = isRefreshed;
  }

  #endTimer(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
