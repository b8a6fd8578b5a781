/** The names for which a manager campaigns, and those that it leads. */

import type { LeadState } from './options.js';

/** @internal */
export class Campaigns {
  readonly #campaigns = new Map<string, { callers: number; terms: number }>();

  /** A campaign begins; the function that this returns ends it. */
  begin(name: string): () => void {
    const state = this.#campaigns.get(name) ?? { callers: 0, terms: 0 };
    this.#campaigns.set(name, state);
    state.callers += 1;
    return () => {
      state.callers -= 1;
      if (state.callers === 0) this.#campaigns.delete(name);
    };
  }

  /** A term has begun, or has ended. */
  lead(name: string, change: 1 | -1): void {
    const state = this.#campaigns.get(name);
    if (state !== undefined) state.terms += change;
  }

  get states(): LeadState[] {
    return [...this.#campaigns].map(([name, { terms }]) => ({ name, leading: terms > 0 }));
  }
}
