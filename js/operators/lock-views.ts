/** The holders and waiters of each lock, as the command line and the page for operators show them. */

import { isLeaderLock } from '../base/names.js';
import { printable } from '../base/printable.js';
import type { LockMode } from '../lock/lock.js';
import type { LockManager } from '../manager/manager.js';
import type { HeldLockInfo, HoldState, LockSnapshot, PendingLockInfo } from '../manager/query.js';

/** One lock. The documented shape of `--json`. */
export interface LockView {
  readonly name: string;
  /** What it is for: `leader` if its holder leads, see `LockManager.lead`. */
  readonly kind: 'leader' | 'lock';
  /** How the lock is held; `null` while it has no holder. */
  readonly mode: LockMode | null;
  readonly holders: readonly Holder[];
  readonly waiters: readonly Waiter[];
}

/** One holder of a lock. */
export interface Holder {
  /** `done` for the mark of a slot of `runOnce` that is done: see `HeldLockInfo.state`. */
  readonly state: HoldState;
  /** Whether a slot that is done keeps its result. */
  readonly result: boolean;
  readonly label: string | null;
  readonly clientId: string;
  /** How many permits it has, of the limit with which it asked; `null` without a limit. */
  readonly permits: number;
  readonly limit: number | null;
  /** When it asked for the lock, by its clock: it has held the lock at most since then. `null` if unknown. */
  readonly askedAt: Date | null;
  /** The fence of a share; `null` for an exclusive lock. */
  readonly fence: number | null;
  /** How long the lease still lasts, in ms; `null` if it never ends by itself. */
  readonly lease: number | null;
}

/** The tokens of holders. They are never shown: with a token anybody may take the lock over. */
const TOKENS = new WeakMap<Holder, string>();

/** One waiter for a lock: the callers of one process count as one. */
export interface Waiter {
  readonly label: string | null;
  readonly clientId: string;
  readonly mode: LockMode;
  /** How many permits it waits for. */
  readonly permits: number;
  readonly position: number;
  /** How long it has waited, in ms. */
  readonly waited: number;
}

/** All locks whose names match a pattern, in order. */
export async function listLocks(locks: LockManager, pattern: string): Promise<LockView[]> {
  const [startsWith = ''] = pattern.split(/[*?]/, 1);
  const matches = matcher(pattern);
  return viewsOf(await locks.query({ startsWith })).filter(({ name }) => matches(name));
}

function viewsOf({ held: all, pending }: LockSnapshot): LockView[] {
  // The command line reads a hold of other code by itself, also of a value that is no text.
  const held = all.filter(({ state }) => state !== 'foreign');
  const names = new Set([...held, ...pending].map(({ name }) => name));
  const heldBy = group(held);
  const waited = group(pending);
  return [...names].sort().map((name) => {
    const holders = heldBy.get(name) ?? [];
    return {
      name,
      kind: kindOf(name),
      mode: holders[0]?.mode ?? null,
      holders: holders.map(holderOf),
      waiters: firstOfEach(waited.get(name) ?? []).map(waiterOf),
    };
  });
}

/** One lock, read by its key. */
export async function viewOf(locks: LockManager, name: string): Promise<LockView> {
  const [view] = viewsOf(await locks.query({ name }));
  return view ?? freeLock(name);
}

/** A lock without holders and waiters. */
export function freeLock(name: string): LockView {
  return { name, kind: kindOf(name), mode: null, holders: [], waiters: [] };
}

function kindOf(name: string): LockView['kind'] {
  return isLeaderLock(name) ? 'leader' : 'lock';
}

/** Whether the lock is held only as the mark of a slot of `runOnce` that is done: its release lets the job run again. */
export function isDone({ holders }: Pick<LockView, 'holders'>): boolean {
  return holders.some(({ state }) => state === 'done');
}

/** The permits of a lock that are held, and the highest limit of its holders; `null` if one of them gave none. */
export function permitsOf({ holders }: Pick<LockView, 'holders'>): {
  readonly permits: number;
  readonly limit: number | null;
} {
  const permits = holders.reduce((sum, holder) => sum + holder.permits, 0);
  const limits = holders.map(({ limit }) => limit ?? Number.POSITIVE_INFINITY);
  const limit = Math.max(...limits);
  return { permits, limit: Number.isFinite(limit) ? limit : null };
}

/**
 * How a lock is held, as people are told; `''` while it is free. A leader holds its lock alone, and of a semaphore some
 * permits are held.
 */
export function modeOf(view: LockView): string {
  const { kind, mode } = view;
  if (isDone(view)) return 'done';
  if (kind === 'leader' && mode === 'exclusive') return 'leader';
  const { permits, limit } = permitsOf(view);
  return limit === null ? (mode ?? '') : `shared, ${permits} of ${limit}`;
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

function holderOf({ token, ttl: lease, ...info }: HeldLockInfo): Holder {
  const { state, result, label, clientId, permits, limit, askedAt, fence } = info;
  const holder = { state, result, label, clientId, permits, limit, askedAt, fence, lease };
  TOKENS.set(holder, token);
  return holder;
}

/** The tokens of the holders of a lock, to tell them from those before. */
export function tokensOf({ holders }: Pick<LockView, 'holders'>): string[] {
  return holders.map((holder) => TOKENS.get(holder) ?? '');
}

/** The first waiter of each process, which may wait for several shares. */
function firstOfEach(waiters: readonly PendingLockInfo[]): PendingLockInfo[] {
  const seen = new Set<string>();
  return waiters.filter(({ clientId }) => !seen.has(clientId) && seen.add(clientId));
}

function waiterOf({ label, clientId, mode, permits, position, waited }: PendingLockInfo): Waiter {
  return { label, clientId, mode, permits, position, waited };
}

/** How long the waiter that has waited longest has waited, in ms; 0 if there is none. */
export function longestWait({ waiters }: LockView): number {
  return waiters.reduce((longest, { waited }) => Math.max(longest, waited), 0);
}

/** The short name of a holder or waiter: its label, or the end of its client id, which begins with a time. */
export function nameOf({ label, clientId }: Holder | Waiter): string {
  // Anybody who may write to the server may have written it.
  return printable(label ?? clientId.slice(-8));
}
