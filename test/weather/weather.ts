/** The bad weather that every adapter must survive, and the form in which an adapter states how it does. */

import type { Scene } from './scene.js';

/** The weather, and what it is. */
export const WEATHERS = {
  answered: 'the answer was already sent by other code',
  left: 'the client has left',
  throws: 'a hook, a serializer or a listener throws',
  refused: 'the server refuses every write, and takes them again',
  hung: 'the server hangs, and comes back',
  twice: 'the same call twice at once',
  rubbish: 'a handler or a store answers rubbish, or nothing',
  stream: 'a stream that nobody reads, a body that was read before',
  stopped: 'the process is stopped between the grant and the first line under the lock',
  separator: 'names with the separators of the adapter in them',
  thousand: '1 000 of everything',
  options: 'options of the manager that the adapter did not expect',
} as const;

export type Weather = keyof typeof WEATHERS;

/** The options of managers that the weather `options` goes through, one at a time. */
export const UNEXPECTED = {
  linger: { ttl: 90_000, linger: 30_000 },
  'awaitRelease: false': { awaitRelease: false },
  besideOldCode: { besideOldCode: { retryDelay: 20 } },
  'wait: 0': { wait: 0 },
  'a short maxHold': { maxHold: 300 },
} as const;

/** What happens to an adapter in a weather. Fails if the adapter has no good answer, or the caller is not told the cause. */
export type Run = (scene: Scene) => Promise<void>;

/** A weather that makes no sense for an adapter, and why. */
export interface Not {
  readonly not: string;
}

/** What a process does that is stopped right after its first grant; what it returns must have JSON. */
export interface Stopped {
  /** In the process that is stopped. */
  readonly first: (scene: Scene) => Promise<unknown>;
  /** Here, while it is stopped and its lease is over. */
  readonly meanwhile: Run;
  /** Judges what `first` returned. */
  readonly judge: (returned: unknown, scene: Scene) => Promise<void> | void;
}

/** What one adapter does in every weather. */
export type Cells = Readonly<Record<Exclude<Weather, 'options' | 'stopped'>, Run | Not>> & {
  readonly stopped: Stopped | Not;
  /** Gets the manager's options by `scene.options`. */
  readonly options: Run | Not;
};

export interface Adapter {
  readonly name: string;
  readonly cells: Cells;
  /** The locks that it leaves to expire, as its page says, by their names. */
  readonly leaves?: RegExp;
}

export const not = (reason: string): Not => ({ not: reason });
