/** Whether an object has its lock, and how it learns that it has it no more. */

import type { HeldLock } from '../../lock/held-lock.js';
import type { Refresher } from './refresher.js';
import { type Holder, type ServerLock, SharedHold } from './shared-hold.js';
import { ValueHold } from './value-hold.js';

/** A hold, and whether this object wants it refreshed. */
interface Refreshable<Hold> {
  hold: Hold;
  isRefreshed: boolean;
}

type State =
  | { readonly is: 'free' }
  /** Another process has acquired it, and this object is to take it over. */
  | { readonly is: 'external' }
  /** The server counts it as held, the object does not: an acquire or a release has not ended. */
  | ({ readonly is: 'between'; readonly before: 'free' | 'external' } & Refreshable<SharedHold>)
  | ({ readonly is: 'held' } & Refreshable<SharedHold>)
  /** Another object has released it. The timer tells this one, if it wanted it refreshed. */
  | { readonly is: 'released'; readonly timer: NodeJS.Timeout | undefined }
  /** A subclass decides whether it is held, with a hold of this class or without. */
  | ({ readonly is: 'own' } & Refreshable<SharedHold | undefined>);

/** The choices of an object about its lock. @internal */
export interface Owner {
  /** Whether the lock is to be refreshed. */
  readonly renew: boolean;
  /** When a refresh would find out that another object has released it, in ms. */
  readonly refreshInterval: number;
  /** Refreshes a lock that no manager renews. */
  readonly refresher: Refresher;
  /** Whether a subclass has its own way to acquire or to refresh the lock. */
  isReplaced(): boolean;
  /** A lock that is to be refreshed is lost. */
  onLost(cause: Error | undefined): void;
}

/** @internal */
export class Possession {
  readonly #owner: Owner;
  readonly #holder: Holder;
  #state: State;

  constructor(isExternal: boolean, owner: Owner) {
    this.#owner = owner;
    this.#state = { is: isExternal ? 'external' : 'free' };
    this.#holder = this.#asHolder();
  }

  /** Whether the lock is held now. */
  get isAcquired(): boolean {
    const state = this.#state;
    return state.is === 'own' || (state.is === 'held' && state.hold.lock.held);
  }

  /** Whether the object has got it, and has not been told of its end. */
  get isBelieved(): boolean {
    return ['held', 'own', 'released'].includes(this.#state.is);
  }

  /** Whether it is to be taken over. */
  get isExternal(): boolean {
    return this.#without === 'external';
  }

  get hold(): SharedHold | undefined {
    return 'hold' in this.#state ? this.#state.hold : undefined;
  }

  /** Has a lock that was just acquired; the caller of the acquire does not know it yet. */
  begin(lock: ServerLock): void {
    this.hold?.leave(this.#holder);
    this.#have(new SharedHold(lock, this.#holder));
  }

  /** Has a lock beside the objects of this process that hold it. */
  async join(shared: SharedHold, take: () => Promise<HeldLock>): Promise<void> {
    this.#have(shared);
    try {
      await shared.takeOver(this.#holder, take);
    } catch (error) {
      this.#drop();
      throw error;
    }
  }

  /** The acquire has succeeded. The lock may have been lost since. */
  settle(): void {
    const { renew, refresher } = this.#owner;
    const { hold } = this;
    if (this.#owner.isReplaced()) this.#become({ is: 'own', hold, isRefreshed: renew });
    else if (hold !== undefined) this.#become({ is: 'held', hold, isRefreshed: renew });
    else if (this.#state.is === 'external') this.#become({ is: 'free' });
    const isUnrenewed = this.#state.is === 'held' && hold?.lock instanceof ValueHold;
    if (renew && (isUnrenewed || this.#state.is === 'own')) refresher.start();
    else refresher.stop();
  }

  /** Ends the refresh. The lock stays held. */
  async stopRefresh(): Promise<void> {
    const state = this.#state;
    this.#owner.refresher.stop();
    if (state.is === 'released') this.#become({ is: 'released', timer: undefined });
    if ('isRefreshed' in state) state.isRefreshed = false;
    await this.hold?.settle();
  }

  /** A release begins: the object does not have the lock any more, but the hold is there to be released. */
  giveUp(): void {
    const { hold } = this;
    if (hold === undefined) this.#become({ is: 'free' });
    else this.#become({ is: 'between', before: 'free', hold, isRefreshed: false });
  }

  /** It is to be taken over again: its release has failed. */
  expect(): void {
    const state = this.#state;
    if (state.is === 'free') this.#become({ is: 'external' });
    else if (state.is === 'between') this.#become({ ...state, before: 'external' });
  }

  /** Releases what is held at the server. */
  async release(): Promise<void> {
    const { hold } = this;
    this.#drop();
    await hold?.release(this.#holder);
  }

  /** Leaves `hold` to expire, if it is still there. */
  leave(hold: SharedHold | undefined): void {
    if (hold === undefined || this.hold !== hold) return;
    this.#drop();
    hold.leave(this.#holder);
  }

  /** A refresh has found out that the lock is lost. */
  lose(cause: Error | undefined): void {
    const { hold } = this;
    const isTold = this.#isRefreshed;
    this.#become({ is: this.#without });
    hold?.leave(this.#holder);
    if (isTold) this.#owner.onLost(cause);
  }

  get #isRefreshed(): boolean {
    const state = this.#state;
    if (state.is === 'released') return state.timer !== undefined;
    return 'isRefreshed' in state && state.isRefreshed;
  }

  /** The state that is left when a hold ends that the object does not believe to have. */
  get #without(): 'free' | 'external' {
    const state = this.#state;
    const is = state.is === 'between' ? state.before : state.is;
    return is === 'external' ? is : 'free';
  }

  #asHolder(): Holder {
    const isRefreshed = () => this.#isRefreshed;
    return {
      get isRefreshed() {
        return isRefreshed();
      },
      lost: (cause) => {
        if (this.#owner.isReplaced()) return this.#drop();
        const isTold = this.#isRefreshed && cause !== undefined;
        this.#become({ is: this.#without });
        if (isTold) this.#owner.onLost(cause);
      },
      released: () => {
        const finds = this.#isRefreshed && !this.#owner.isReplaced();
        if (finds) this.#loseLater('another object released it by its identifier');
        else this.#drop();
      },
    };
  }

  /** Loses the lock when the next refresh would find out. */
  #loseLater(cause: string): void {
    const lose = () => this.lose(new Error(cause));
    const timer = setTimeout(lose, this.#owner.refreshInterval).unref();
    this.#become({ is: 'released', timer });
  }

  #have(hold: SharedHold): void {
    const state = this.#state;
    const has = { hold, isRefreshed: this.#owner.renew };
    if (state.is === 'own') this.#become({ is: 'own', ...has });
    else if (this.isBelieved) this.#become({ is: 'held', ...has });
    else this.#become({ is: 'between', before: this.#without, ...has });
  }

  /** Has no hold any more; the object is not told. */
  #drop(): void {
    const state = this.#state;
    if (state.is === 'own') state.hold = undefined;
    else if (state.is === 'held') this.#become({ is: 'released', timer: undefined });
    else if (state.is === 'between') this.#become({ is: this.#without });
  }

  /** Changes the state. A lock that is not held is not refreshed. */
  #become(state: State): void {
    if (this.#state.is === 'released') clearTimeout(this.#state.timer);
    if (state.is !== 'held' && state.is !== 'own') this.#owner.refresher.stop();
    this.#state = state;
  }
}
