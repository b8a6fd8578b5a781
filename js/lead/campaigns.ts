/** The names for which a manager campaigns, and those that it leads. */

import { callListeners } from '../native/calls.js';
import type { LeadState, Term, TermEnd } from './options.js';
import type { TermListener } from './term.js';

/** How many callers of a manager campaign for one name, wait for it, and lead. */
interface Counts {
  callers: number;
  waiting: number;
  leading: number;
}

/** One campaign, until its end. @internal */
export interface Campaign {
  /** Counts it as waiting until `taken` is settled. */
  whileWaiting<T>(taken: Promise<T>): Promise<T>;
  end(): void;
}

/** Gets the events of a manager's terms. */
interface Emitter {
  emit(event: 'elected', term: Term): boolean;
  emit(event: 'stepDown', term: Term, end: TermEnd): boolean;
}

/** @internal */
export class Campaigns implements TermListener {
  /** Aborted when the manager begins to close. */
  readonly closing: AbortSignal;
  readonly #emitter: Emitter;
  readonly #byName = new Map<string, Counts>();

  constructor(closing: AbortSignal, emitter: Emitter) {
    this.closing = closing;
    this.#emitter = emitter;
  }

  /** A campaign begins. */
  begin(name: string): Campaign {
    const counts = this.#byName.get(name) ?? { callers: 0, waiting: 0, leading: 0 };
    this.#byName.set(name, counts);
    counts.callers += 1;
    return {
      whileWaiting: async (taken) => {
        counts.waiting += 1;
        try {
          return await taken;
        } finally {
          counts.waiting -= 1;
        }
      },
      end: () => {
        counts.callers -= 1;
        if (counts.callers === 0) this.#byName.delete(name);
      },
    };
  }

  elected(term: Term): void {
    this.#count(term.name, 1);
    callListeners(() => this.#emitter.emit('elected', term));
  }

  steppedDown(term: Term, end: TermEnd): void {
    this.#count(term.name, -1);
    callListeners(() => this.#emitter.emit('stepDown', term, end));
  }

  #count(name: string, change: 1 | -1): void {
    const counts = this.#byName.get(name);
    if (counts !== undefined) counts.leading += change;
  }

  /** How many campaigns wait for their locks. */
  get waiting(): number {
    return [...this.#byName.values()].reduce((sum, { waiting }) => sum + waiting, 0);
  }

  get states(): LeadState[] {
    return [...this.#byName].map(([name, { leading, waiting }]) => ({
      name,
      leading: leading > 0,
      waiting: waiting > 0,
    }));
  }
}
