/** The holders and waiters of all locks, as the store has them. */

import {
  askedAt,
  clientOf,
  isForeign,
  labelOf,
  ownerOf,
  readMark,
  shareOf,
} from '../base/tokens.js';
import type { NativeChannel } from '../native/channel.js';
import { type Outcome, queryOperation, readTtl } from '../native/records.js';
import type { LockMode } from './lock.js';
import { type ErrorContext, toError } from './outcome.js';

/** The options of `query`. `whole`: `text` is a name, otherwise the beginning of names. @internal */
export interface QueryRequest {
  readonly count: number;
  readonly text: string;
  readonly whole: boolean;
}

/**
 * How a hold is, see `HeldLockInfo.state`. More states may be added.
 *
 * @example
 * ```ts
 * import type { HoldState } from 'holdfast'
 *
 * const isAtWork = (state: HoldState) => state !== 'done'
 * const { held } = await locks.query()
 * console.log(held.filter(({ state }) => isAtWork(state)).length) // 0
 * ```
 */
export type HoldState = 'done' | 'foreign' | 'held' | 'idle';

/**
 * One holder of a lock.
 *
 * @example
 * ```ts
 * await using lock = await locks.acquire('item:42')
 * const [{ name, clientId, ttl }] = (await locks.query()).held
 * console.log(name, clientId === locks.clientId, ttl !== null) // item:42 true true
 * ```
 */
export interface HeldLockInfo {
  /** The lock's name. */
  readonly name: string;
  /**
   * How the hold is: `done` for the mark of a slot of `runOnce` whose job is not to run again until the lease ends. It is
   * there from before the body, with `retry` after it. `idle` while this manager keeps the lock for its next caller, see the
   * option `linger`; that another manager keeps a lock is not seen. `foreign` for other code, as during a rolling deploy,
   * whose value is then the `token`, of which the first 512 bytes: only a query for one `name` shows it. Otherwise `held`.
   */
  readonly state: HoldState;
  /** Whether a slot that is done keeps the result of its body. */
  readonly result: boolean;
  /** For how long it has been `idle`, in ms; `null` if it is not. */
  readonly idleFor: number | null;
  /** How the lock is held. */
  readonly mode: LockMode;
  /** How many permits the holder has; 1 unless it asked for more. */
  readonly permits: number;
  /** The `limit` with which the holder asked for its share; `null` if it gave none. */
  readonly limit: number | null;
  /** The holder: the `clientId` of its manager, of an `owner` the one that has got the lock last; empty for other code. */
  readonly clientId: string;
  /** The `owner` that was named when the lock was acquired; `null` if none was. */
  readonly owner: string | null;
  /** The holder's `label`; `null` if it has none. */
  readonly label: string | null;
  /** The owner token, with the holder's label at its end. */
  readonly token: string;
  /**
   * When the holder asked for the lock, by the clock of its machine: it has held the lock at most since then, and since
   * then if it did not have to wait. `null` if the token does not tell it, as one that its caller has chosen.
   */
  readonly askedAt: Date | null;
  /**
   * The fencing token of a share; `null` where only the owner knows it: of an exclusive lock, and of a share that found
   * the lock free, until it is renewed beside others.
   */
  readonly fence: number | null;
  /** How long the lease lasts unless it is renewed, in ms; `null` if it never ends by itself. */
  readonly ttl: number | null;
}

/**
 * One waiter for a lock. The callers of one manager that wait to hold the same lock exclusively count as one, since they
 * have one place in the queue; those that wait to share it have one each.
 *
 * @example
 * ```ts
 * const longest = (await locks.query()).pending.filter(({ position }) => position > 10)
 * ```
 */
export interface PendingLockInfo {
  /** The lock's name. */
  readonly name: string;
  /** How the waiter wants to hold the lock. */
  readonly mode: LockMode;
  /** How many permits it waits for; 1 unless it asked for more. */
  readonly permits: number;
  /** The waiter: the `clientId` of its manager. */
  readonly clientId: string;
  /** The label of the waiter, or of the first of several; `null` if it has none. */
  readonly label: string | null;
  /** The position in the wait queue, 1 for the next; of several waiters of one manager the first one's. */
  readonly position: number;
  /** How long it has waited, by the clock of the server, in ms; of several callers the first one. */
  readonly waited: number;
}

/**
 * The result of `query`.
 *
 * @example
 * ```ts
 * const { held, pending } = await locks.query()
 * console.log(held.length, pending.length) // 0 0
 * ```
 */
export interface LockSnapshot {
  /** The holders. */
  readonly held: HeldLockInfo[];
  /** The waiters. */
  readonly pending: PendingLockInfo[];
}

/** A page as the core sends it: with keys in place of names. */
type Page = NonNullable<NonNullable<Outcome['text']>['page']>;

/** @internal */
export async function* readPages(
  channel: NativeChannel,
  context: ErrorContext,
  prefix: string,
  { count, text, whole }: QueryRequest,
): AsyncGenerator<LockSnapshot, void, undefined> {
  const keys = { keysStartWith: prefix + text, wholeKey: whole, count };
  let cursor = '';
  do {
    const outcome = await channel.submit(queryOperation(cursor, keys));
    const page = outcome.text?.page;
    if (page === undefined) throw toError(outcome, context, 'query');
    cursor = page.cursor;
    yield snapshotOf(page, prefix.length);
  } while (cursor !== '');
}

/** The holders of one lock by their tokens, and its waiters by their positions. */
interface Seen {
  readonly held: Map<string, HeldLockInfo>;
  readonly pending: Map<number, PendingLockInfo>;
}

/** Joins all pages, in order. A lock that is on two pages, as while its slot moves, counts as the later one shows it. @internal */
export async function gather(pages: AsyncIterable<LockSnapshot>): Promise<LockSnapshot> {
  const locks = new Map<string, Seen>();
  for await (const page of pages) {
    for (const [name, seen] of byLock(page)) locks.set(name, seen);
  }
  const all = [...locks.values()];
  return {
    held: all
      .flatMap(({ held }) => [...held.values()])
      .sort((a, b) => byName(a, b) || Number(a.fence) - Number(b.fence)),
    pending: all
      .flatMap(({ pending }) => [...pending.values()])
      .sort((a, b) => byName(a, b) || a.position - b.position),
  };
}

/** The locks of a page. SCAN may find a key twice. */
function byLock({ held, pending }: LockSnapshot): Map<string, Seen> {
  const locks = new Map<string, Seen>();
  const seen = (name: string) => {
    const lock = locks.get(name) ?? { held: new Map(), pending: new Map() };
    locks.set(name, lock);
    return lock;
  };
  for (const info of held) seen(info.name).held.set(info.token, info);
  for (const info of pending) seen(info.name).pending.set(info.position, info);
  return locks;
}

function snapshotOf({ held, pending }: Page, prefixLength: number): LockSnapshot {
  return {
    held: held.map(({ key, shared, token, fence, ttl, idle }) => ({
      name: key.slice(prefixLength),
      mode: modeOf(shared),
      ...shareOf(token),
      ...stateOf(token, idle),
      clientId: clientOf(token) ?? '',
      owner: ownerOf(token),
      label: labelOf(token) ?? null,
      token,
      askedAt: askedAt(token),
      fence: fence ?? null,
      ttl: readTtl(ttl),
    })),
    pending: firstOfEach(pending).map(({ key, shared, token, position, waited }) => ({
      name: key.slice(prefixLength),
      mode: modeOf(shared),
      permits: shareOf(token).permits,
      clientId: clientOf(token) ?? '',
      label: labelOf(token) ?? null,
      position,
      waited,
    })),
  };
}

/** For each lock those who wait to share it or for an owner, and of the others the first of each manager. */
function firstOfEach(pending: Page['pending']): Page['pending'] {
  const first = new Map<string, Page['pending'][number]>();
  for (const waiter of pending) {
    const { key, shared, token } = waiter;
    const isAlone = shared || ownerOf(token) !== null;
    const whose = JSON.stringify([key, shared, isAlone ? token : (clientOf(token) ?? token)]);
    if (!first.has(whose)) first.set(whose, waiter);
  }
  return [...first.values()];
}

/** How a hold is, by its token, and for how long it has been idle. */
function stateOf(
  token: string,
  idle: number | undefined,
): Pick<HeldLockInfo, 'idleFor' | 'result' | 'state'> {
  const mark = readMark(token);
  if (mark !== undefined) return { state: 'done', result: mark.json !== undefined, idleFor: null };
  const state = isForeign(token) ? 'foreign' : idle === undefined ? 'held' : 'idle';
  return { state, result: false, idleFor: idle ?? null };
}

function modeOf(shared: boolean): LockMode {
  return shared ? 'shared' : 'exclusive';
}

function byName({ name: a }: { name: string }, { name: b }: { name: string }): number {
  return a < b ? -1 : Number(a > b);
}
