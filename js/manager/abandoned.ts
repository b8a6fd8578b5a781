/** Warns of abandoned locks, which may be thousands. */

import { abandonedWarning, type Warning } from './warnings.js';

const PAUSE_MS = 1_000;

/** Those of the process: the fake ones that a test puts in their place may never call. */
const { clearTimeout, setTimeout } = globalThis;

/** Warns of the first abandoned lock at once, and then once a second of the next one, with the number of others. @internal */
export class Abandoned {
  readonly #warn: (warning: Warning) => void;
  /** Each is told or counted once. */
  readonly #known = new Set<string>();
  /** The names for the next warning, and where their locks were acquired; `undefined` outside of a pause. */
  #waiting: Map<string, string | undefined> | undefined;

  #timer: NodeJS.Timeout | undefined;

  constructor(warn: (warning: Warning) => void) {
    this.#warn = warn;
  }

  add(name: string, origin: string | undefined): void {
    if (this.#known.has(name)) return;
    this.#known.add(name);
    if (this.#waiting === undefined) this.#tell(name, origin, 0);
    else this.#waiting.set(name, origin);
  }

  /** The manager is closed, and its locks are released. */
  end(): void {
    clearTimeout(this.#timer);
    this.#waiting = new Map();
  }

  #tell(name: string, origin: string | undefined, others: number): void {
    this.#waiting = new Map();
    this.#timer = setTimeout(this.#resume, PAUSE_MS).unref();
    this.#warn(abandonedWarning(name, origin, others));
  }

  readonly #resume = (): void => {
    const [first, ...others] = this.#waiting ?? [];
    this.#waiting = undefined;
    if (first !== undefined) this.#tell(...first, others.length);
  };
}
