/** The holders and waiters of each lock, as the command line and the page for operators show them. */

import { isLeaderLock } from '../../base/names.js';
import type { LockMode } from '../../lock/lock.js';
import type { HeldLockInfo, HoldState, LockSnapshot, PendingLockInfo } from '../../lock/query.js';
import type { LockManager } from '../../manager/manager.js';
import { shortName } from './words.js';

/** One lock. The documented shape of `--json`. */
export interface LockView {
  readonly name: string;
  /** The purpose: `leader` if its holder leads, see `LockManager.lead`. */
  readonly kind: 'leader' | 'lock';
  /** How the lock is held; `null` while it has no holder. */
  readonly mode: LockMode | null;
  /** How many permits may be held at once; `null` where there is no limit, or nobody knows it. */
  readonly limit: number | null;
  readonly holders: readonly HolderView[];
  readonly waiters: readonly WaiterView[];
  /** The answer of each server; of a quorum alone. */
  readonly votes?: readonly Vote[];
}

/** The answer of one server of a quorum about a lock. */
export interface Vote {
  /** The server, without login. */
  readonly server: string;
  /** The short name of who holds it there; `null` if nobody does. */
  readonly by: string | null;
  /** Why the server has no say; `null` if it answers. */
  readonly failure: string | null;
}

/** One holder of a lock. */
export interface HolderView {
  /** How the hold is, see `HeldLockInfo.state`. */
  readonly state: HoldState;
  /** Whether a slot that is done keeps its result. */
  readonly result: boolean;
  /** How many permits of a semaphore it holds. */
  readonly permits: number;
  readonly label: string | null;
  readonly clientId: string;
  /** When it asked for the lock, by its clock: it has held the lock at most since then. `null` if unknown. */
  readonly askedAt: Date | null;
  /** The fence of a share; `null` for an exclusive lock. */
  readonly fence: number | null;
  /** How long the lease still lasts, in ms; `null` if it never ends by itself. */
  readonly lease: number | null;
}

/** The tokens of holders. They are never shown: with a token anybody may take the lock over. */
const TOKENS = new WeakMap<HolderView, string>();

/** One waiter for a lock: the callers of one process that wait to hold it alone count as one, those that share it do not. */
export interface WaiterView {
  readonly label: string | null;
  readonly clientId: string;
  readonly mode: LockMode;
  /** How many permits of a semaphore it asks for. */
  readonly permits: number;
  readonly position: number;
  /** How long it has waited, in ms. */
  readonly waited: number;
}

/** All locks whose names match a pattern, in order. */
export async function listLocks(
  locks: Pick<LockManager, 'query'>,
  pattern: string,
): Promise<LockView[]> {
  const [startsWith = ''] = pattern.split(/[*?]/, 1);
  const matches = matcher(pattern);
  return viewsOf(await locks.query({ startsWith })).filter(({ name }) => matches(name));
}

function viewsOf({ held, pending }: LockSnapshot): LockView[] {
  const names = new Set([...held, ...pending].map(({ name }) => name));
  const heldBy = group(held);
  const waited = group(pending);
  return [...names].sort().map((name) => {
    const holders = heldBy.get(name) ?? [];
    return {
      name,
      kind: kindOf(name),
      mode: holders[0]?.mode ?? null,
      limit: limitOf(holders),
      holders: holders.map(holderOf),
      waiters: (waited.get(name) ?? []).map(waiterOf),
    };
  });
}

/** One lock, read by its key. */
export async function viewOf(locks: LockManager, name: string): Promise<LockView> {
  const { held, pending } = await locks.query({ name });
  // The command line reads a hold of other code by itself, also of a value that is no text.
  const own = held.filter(({ state }) => state !== 'foreign');
  const [view] = viewsOf({ held: own, pending });
  return view ?? freeLock(name);
}

/** A lock without holders and waiters. */
export function freeLock(name: string): LockView {
  return { name, kind: kindOf(name), mode: null, limit: null, holders: [], waiters: [] };
}

function kindOf(name: string): LockView['kind'] {
  return isLeaderLock(name) ? 'leader' : 'lock';
}

/** Whether nobody is at work under the lock: it is the mark of a slot of `runOnce` that is done. */
export function isDone({ holders }: Pick<LockView, 'holders'>): boolean {
  return holders.some(({ state }) => state === 'done');
}

/** How many permits of a lock are held. */
function permitsOf({ holders }: Pick<LockView, 'holders'>): number {
  return holders.reduce((sum, { permits }) => sum + permits, 0);
}

/**
 * How a lock is held, as people are told; `''` while it is free. A leader holds its lock alone, and of a semaphore some
 * permits are held.
 */
export function modeOf(view: LockView): string {
  const { kind, mode, limit } = view;
  if (isDone(view)) return 'done';
  if (kind === 'leader' && mode === 'exclusive') return 'leader';
  return limit === null ? (mode ?? '') : `shared, ${permitsOf(view)} of ${limit}`;
}

/** `*` stands for any text, `?` for one character. */
function matcher(pattern: string): (name: string) => boolean {
  const source = pattern.replace(/[\\^$.|+()[\]{}]/g, '\\$&').replace(/\*/g, '.*');
  const expression = new RegExp(`^${source.replace(/\?/g, '.')}$`, 'su');
  return (name) => expression.test(name);
}

function group<T extends { readonly name: string }>(all: readonly T[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const each of all) {
    const group = groups.get(each.name);
    if (group === undefined) groups.set(each.name, [each]);
    else group.push(each);
  }
  return groups;
}

/** Holders may give different limits: the least is the one that the next caller meets first. */
function limitOf(holders: readonly HeldLockInfo[]): number | null {
  const limits = holders.flatMap(({ limit }) => (limit === null ? [] : [limit]));
  return limits.length === 0 ? null : Math.min(...limits);
}

function holderOf({ token, ttl: lease, ...info }: HeldLockInfo): HolderView {
  const { state, result, permits, label, clientId, askedAt, fence } = info;
  const holder = { state, result, permits, label, clientId, askedAt, fence, lease };
  TOKENS.set(holder, token);
  return holder;
}

/** The same holder under another label. */
export function withLabel(holder: HolderView, label: string | null): HolderView {
  const renamed = { ...holder, label };
  TOKENS.set(renamed, TOKENS.get(holder) ?? '');
  return renamed;
}

/** The tokens of the holders of a lock, to tell them from those before. */
export function tokensOf({ holders }: Pick<LockView, 'holders'>): string[] {
  return holders.map((holder) => TOKENS.get(holder) ?? '');
}

function waiterOf({
  label,
  clientId,
  mode,
  permits,
  position,
  waited,
}: PendingLockInfo): WaiterView {
  return { label, clientId, mode, permits, position, waited };
}

/** Whether a table of this lock needs to tell permits: it is a semaphore, also while none of it is held. */
export function countsPermits({ limit, waiters }: Pick<LockView, 'limit' | 'waiters'>): boolean {
  return limit !== null || waiters.some(({ permits }) => permits > 1);
}

/** How long the waiter that has waited longest has waited, in ms; 0 if there is none. */
export function longestWait({ waiters }: LockView): number {
  return waiters.reduce((longest, { waited }) => Math.max(longest, waited), 0);
}

/** The short name of a holder or waiter. */
export function nameOf({ label, clientId }: HolderView | WaiterView): string {
  return shortName(label, clientId);
}
