/** One term of a leader: from its grant until it is over, for whatever reason. */

import { noticing, onAbort } from '../base/abort.js';
import type { LockLostError } from '../base/errors.js';
import type { SharedHandle } from '../lock/lock.js';
import type { Term, TermEnd } from './options.js';

/** Gets the beginning and the end of each term. @internal */
export interface TermListener {
  elected(term: Term): void;
  steppedDown(term: Term, end: TermEnd): void;
}

/** The timers of the process: a test may replace them. */
const { clearInterval, setInterval } = globalThis;
/** The longest interval that there is. */
const INTERVAL_MS = 2 ** 31 - 1;

/** @internal */
export class LeaderTerm implements Term {
  readonly name: string;
  readonly lock: SharedHandle;
  readonly since = new Date();
  readonly #abort = new AbortController();
  readonly #signal = noticing(this.#abort.signal, () => void this.signal);
  readonly #begun = performance.now();
  readonly #listener: TermListener;
  #forgets: readonly (() => void)[] = [];
  /** Waiting for the lead keeps a process alive; so does a term, also if its callback only waits for its signal. */
  #alive: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(name: string, lock: SharedHandle, listener: TermListener) {
    this.name = name;
    this.lock = lock;
    this.#listener = listener;
  }

  /** Begins the term, which ends with its lock; its signal is aborted before, if `stop` is. */
  begin(stop: AbortSignal | undefined): void {
    const { signal } = this.lock;
    const lost = () => {
      this.#tell(signal.reason);
      this.end((signal.reason as LockLostError).reason === 'closed' ? 'resigned' : 'lost');
    };
    const stopped = () => this.#tell(stop?.reason);
    this.#alive = setInterval(() => {}, INTERVAL_MS);
    this.#listener.elected(this);
    this.#forgets = [onAbort(signal, lost), stop === undefined ? () => {} : onAbort(stop, stopped)];
    // A signal that was aborted before emits no event.
    if (signal.aborted) lost();
    else if (stop?.aborted === true) stopped();
  }

  get fence(): number {
    return this.lock.fence;
  }

  get signal(): AbortSignal {
    // A loss aborts it at once, though the event loop may have been blocked since.
    void this.lock.signal;
    return this.#signal;
  }

  /** Tells the callback to end. */
  #tell(reason: unknown): void {
    clearInterval(this.#alive);
    this.#abort.abort(reason);
  }

  /** How long ago the term began, in ms. */
  get lasted(): number {
    return performance.now() - this.#begun;
  }

  /** The term is over. Only the first reason counts. */
  end(end: TermEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearInterval(this.#alive);
    for (const forget of this.#forgets) forget();
    this.#listener.steppedDown(this, end);
  }
}
