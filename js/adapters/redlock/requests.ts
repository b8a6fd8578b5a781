/** The requests of a manager, checked once for all locks with the same options. */

import type { LockManager, PreparedRequest } from '../../manager/manager.js';

/** The terms that a caller of a drop-in asks for. @internal */
export interface Wanted {
  readonly ttl: number;
  readonly renew: boolean;
  /** In ms; `null` for not at all. */
  readonly wait: number | null;
  /** Only of a semaphore: how many permits all callers have, and how many of them this one takes. */
  readonly limit?: number | undefined;
  readonly permits?: number | undefined;
}

/** A service has few kinds of locks; one that has more pays for the check. */
const KNOWN_MAX = 8;

/** @internal */
export class Requests {
  readonly #manager: LockManager;
  /** The one that was made last comes first. */
  readonly #known: (Wanted & { readonly request: PreparedRequest })[] = [];

  constructor(manager: LockManager) {
    this.#manager = manager;
  }

  /** Those that are known. */
  get all(): ReadonlySet<PreparedRequest> {
    return new Set(this.#known.map(({ request }) => request));
  }

  for(wanted: Wanted): PreparedRequest {
    const { ttl, renew, wait, limit, permits } = wanted;
    for (const known of this.#known) {
      const isSameHold = known.ttl === ttl && known.renew === renew && known.wait === wait;
      if (isSameHold && known.limit === limit && known.permits === permits) return known.request;
    }
    const request = this.#prepare(wanted);
    if (this.#known.length === KNOWN_MAX) this.#known.pop();
    this.#known.unshift({ ttl, renew, wait, limit, permits, request });
    return request;
  }

  #prepare({ ttl, renew, wait, limit, permits }: Wanted): PreparedRequest {
    const share = limit === undefined ? {} : { mode: 'shared' as const, limit };
    const hold = { ttl, renew, leaveToExpire: !renew, ...share, ...(permits ? { permits } : {}) };
    return wait === null
      ? this.#manager.prepare(hold, false)
      : this.#manager.prepare({ ...hold, wait }, true);
  }
}
