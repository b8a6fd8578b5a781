/** The locks as the page gets them. Times are in ms since 1970, so that the page can count by itself. */

import { createHash } from 'node:crypto';
import type { LockMode } from '../../lock/lock.js';
import type { HoldState } from '../../lock/query.js';
import {
  type HolderView,
  type LockView,
  nameOf,
  tokensOf,
  type Vote,
  type WaiterView,
} from '../views/lock-views.js';
import type { Change, HoldAge, Observer } from '../views/observer.js';
import type { Happening, Person } from './history.js';

/** One lock. @internal */
export interface Row {
  readonly name: string;
  readonly kind: LockView['kind'];
  readonly mode: LockMode | null;
  /** How many permits may be held at once; `null` where there is no limit. */
  readonly limit: number | null;
  /** Stands for the holders: it changes whenever another gets the lock. */
  readonly holdersId: string;
  readonly holders: readonly RowHolder[];
  readonly waiters: readonly RowWaiter[];
  /** How often it was seen with an owner that it did not have before. */
  readonly changes: number;
  /** The answer of each server; of a quorum alone. */
  readonly votes?: readonly Vote[];
}

interface RowHolder {
  readonly state: HoldState;
  /** Whether a slot that is done keeps its result. */
  readonly result: boolean;
  /** How many permits of a semaphore it holds. */
  readonly permits: number;
  readonly label: string | null;
  readonly client: string;
  readonly fence: number | null;
  /** Since when it holds the lock, as far as is known. */
  readonly since: number;
  readonly began: HoldAge['began'];
  /** The end of the lease; `null` if it never ends by itself. */
  readonly ends: number | null;
}

interface RowWaiter {
  readonly label: string | null;
  readonly client: string;
  readonly mode: LockMode;
  /** How many permits of a semaphore it asks for. */
  readonly permits: number;
  readonly since: number;
}

/** Two looks date the same moment differently by less than this, in ms. */
const BLUR_MS = 500;
const HOLDERS_ID_LENGTH = 22;
/** The tokens of each row's holders: they never leave this process, and hashes are computed once. */
const TOKENS = new WeakMap<Row, string>();

/** The row of a lock at `now`. What has hardly moved since the row `before` stays as it is there. @internal */
export function rowOf(view: LockView, observer: Observer, now: number, before?: Row): Row {
  const holders = view.holders.map((holder, i) =>
    holderOf(holder, observer, now, before?.holders[i]),
  );
  const waiters = view.waiters.map((waiter, i) => waiterOf(waiter, now, before?.waiters[i]));
  const changes = observer.changesOf(view.name);
  const tokens = tokensOf(view).join();
  const same = before !== undefined && TOKENS.get(before) === tokens;
  const holdersId = same ? before.holdersId : holdersIdOf(view);
  const { name, kind, mode, limit, votes } = view;
  const shown = { name, kind, mode, limit, holdersId, holders, waiters, changes };
  const row: Row = votes === undefined ? shown : { ...shown, votes };
  TOKENS.set(row, tokens);
  return row;
}

/** Stands for the holders of a lock, without their tokens: with a token anybody may take the lock over. @internal */
export function holdersIdOf(view: LockView): string {
  const hash = createHash('sha256').update(JSON.stringify(tokensOf(view).sort()));
  return hash.digest('base64url').slice(0, HOLDERS_ID_LENGTH);
}

/** Whether two rows differ in more than the ends of their leases. @internal */
export function differs(a: Row, b: Row): boolean {
  return withoutLeases(a) !== withoutLeases(b);
}

/** The ends of a row's leases. @internal */
export function endsOf({ holders }: Row): (number | null)[] {
  return holders.map(({ ends }) => ends);
}

/** The event in the history that a change makes. @internal */
export function happeningOf({ name, kind, from, to }: Change, at: number): Happening {
  return { at, name, kind, from: from.map(personOf), to: to.map(personOf) };
}

function personOf(holder: HolderView): Person {
  return { name: nameOf(holder), client: holder.clientId };
}

function withoutLeases({ holders, ...row }: Row): string {
  return JSON.stringify([row, holders.map(({ ends, ...rest }) => rest)]);
}

function holderOf(
  holder: HolderView,
  observer: Observer,
  now: number,
  before?: RowHolder,
): RowHolder {
  const { state, result, permits, label, clientId: client, fence, lease } = holder;
  const unseen = { since: now, began: 'or earlier' } as const;
  const { since, began } = observer.holdOf(holder) ?? unseen;
  const ends = lease === null ? null : steady(now + lease, before?.ends);
  return { state, result, permits, label, client, fence, since, began, ends };
}

function waiterOf(
  { label, clientId, mode, permits, waited }: WaiterView,
  now: number,
  before?: RowWaiter,
): RowWaiter {
  const same = before?.client === clientId ? before.since : undefined;
  return { label, client: clientId, mode, permits, since: steady(now - waited, same) };
}

function steady(time: number, before: number | null | undefined): number {
  return typeof before === 'number' && Math.abs(time - before) < BLUR_MS ? before : time;
}
