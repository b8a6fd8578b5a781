/** What a feature of several steps states about itself, so that it can be broken off between any two of them. */

import { appendFileSync } from 'node:fs';

/** The lock of a manager's first acquire, which has more steps than those that follow: it counts as none. */
export const WARM_UP = 'warm-up';

/** Where a caller runs, and with what. */
export interface Place {
  /** The server: for the first caller through the wire on which requests meet their fates. */
  readonly url: string;
  /** A name that no other case uses. */
  readonly name: string;
  /** The lease of its locks in ms: a minute where a lock that is left behind must not end by itself. */
  readonly ttl: number;
  /** How long a caller waits for its locks, in ms: less than a minute, more than the short lease. */
  readonly wait: number;
  /** The file of the effects. */
  readonly ledger: string;
  /** The caller: `first`, `second` or `again`. */
  readonly who: string;
  /** What `prepare` gave, as JSON. */
  readonly given: unknown;
  /** Where other servers are. */
  readonly servers: Readonly<Record<string, string>>;
}

/** What a caller does its work with. */
export interface Scene extends Place {
  /** Writes an effect down, as the world would see it. */
  note(effect: string): void;
  /** Tells the process that a fault of processes has to stop or kill, if it is none of these. */
  runsIn(pid: number): void;
}

/** How a call ended. */
export interface Outcome {
  readonly value?: unknown;
  /** The error's name, code and message. */
  readonly error?: { readonly name: string; readonly code?: string; readonly message: string };
  /** It never ended: its process was killed. */
  readonly killed?: true;
}

/** What was seen of a case, for the judge. */
export interface Seen<Prepared = unknown> {
  readonly fault: string;
  /** The number of the request, from 1. */
  readonly step: number;
  readonly first: Outcome;
  /** A second caller, right after the first, or while the first is stopped. */
  readonly second: Outcome;
  /** The same once more, when all that the first had opened is closed. */
  readonly again: Outcome;
  readonly effects: readonly string[];
  /** The keys that remain in the Redis, with their values; of other types than texts the type. */
  readonly store: Readonly<Record<string, string>>;
  readonly prepared: Prepared;
}

/** A promise is kept, or what contradicts it. */
export type Promised<Prepared> = (seen: Seen<Prepared>) => boolean;

/** What goes ahead of a case: a holder, say. It uses no wire. */
export interface Preparation {
  /** What the callers are given; it must have JSON. */
  readonly given?: unknown;
  close?(): Promise<unknown>;
}

/** A feature of several steps. */
// biome-ignore lint/suspicious/noExplicitAny: each feature has a client of its own
export interface Feature<Client = any, Prepared extends Preparation = any> {
  readonly name: string;
  /** Where its promises stand. */
  readonly page: string;
  /** The server of the wire; by default the Redis. */
  readonly through?: string;
  /** Whether the store within the process has it, too. */
  readonly memory?: boolean;
  /** Whether its first caller is a process of its own in any case, see `runsIn`. */
  readonly ownProcess?: boolean;
  /** Whether all callers are in one process: none is stopped or killed. */
  readonly oneProcess?: boolean;
  /** The names of the faults that it is tried with; by default all. */
  readonly faults?: readonly string[];
  /** The faults after which it leaves locks to expire, as its page says: their leases are short. */
  readonly leavesLocks?: readonly ('closes' | 'away')[];
  prepare?(scene: Scene): Promise<Prepared>;
  /** Opens what a caller uses; its requests are none of the steps unless they name the case. */
  open(scene: Scene): Promise<Client>;
  /** Ends what `open` opened: a fault of its own. For a process it is SIGTERM. */
  close(client: Client, scene: Scene): Promise<unknown>;
  first(client: Client, scene: Scene): Promise<unknown>;
  second(client: Client, scene: Scene, prepared: Prepared): Promise<unknown>;
  readonly promises: Readonly<Record<string, Promised<Prepared>>>;
}

export function sceneOf(place: Place, runsIn: (pid: number) => void = () => {}): Scene {
  return {
    ...place,
    note: (effect) => appendFileSync(place.ledger, `${effect}\n`),
    runsIn,
  };
}

/** Waits for the end of a call. */
export async function outcomeOf(call: Promise<unknown>): Promise<Outcome> {
  try {
    const value = await call;
    return value === undefined ? {} : { value };
  } catch (error) {
    const { name, code, message } = error as Error & { code?: string };
    return { error: { name, ...(code === undefined ? {} : { code }), message } };
  }
}
