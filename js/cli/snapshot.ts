/** The holders and waiters of each lock, as `ls`, `show` and `watch` show them. */

import type { LockManager } from '../api/manager.js';
import type { LockMode } from '../api/options.js';
import type { HeldLockInfo, PendingLockInfo } from '../api/query.js';
import { human } from '../internal/human.js';
import { survey } from '../internal/survey.js';
import { CliError, Exit } from './exit.js';
import type { Where } from './options.js';
import { printable, table } from './terminal.js';

/** One lock. The documented shape of `--json`. */
export interface LockView {
  readonly name: string;
  /** How the lock is held; `null` while it has no holder. */
  readonly mode: LockMode | null;
  readonly holders: readonly Holder[];
  readonly waiters: readonly Waiter[];
}

/** One holder of a lock. */
export interface Holder {
  readonly label: string | null;
  readonly clientId: string;
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
  readonly position: number;
}

/** All locks whose names match a pattern, in order. */
export async function listLocks(locks: LockManager, pattern: string): Promise<LockView[]> {
  const [startsWith = ''] = pattern.split(/[*?]/, 1);
  const { held, pending } = await locks.query({ startsWith });
  const matches = matcher(pattern);
  const names = new Set([...held, ...pending].map(({ name }) => name).filter(matches));
  const heldBy = group(held);
  const waited = group(pending);
  return [...names].sort().map((name) => {
    const holders = heldBy.get(name) ?? [];
    return {
      name,
      mode: holders[0]?.mode ?? null,
      holders: holders.map(holderOf),
      waiters: (waited.get(name) ?? []).map(waiterOf),
    };
  });
}

/** One lock, even if its name looks like a pattern. */
export async function viewOf(locks: LockManager, name: string): Promise<LockView> {
  const views = await listLocks(locks, name.replace(/[*?]/g, '?'));
  const nobody: LockView = { name, mode: null, holders: [], waiters: [] };
  return views.find((view) => view.name === name) ?? nobody;
}

/**
 * How long other code holds the lock, in ms; `null` if without an end, undefined if the key does not exist. In a
 * Cluster all servers but the one of its slot refuse to answer.
 */
export async function foreignLease(
  { target, options, label }: Where,
  name: string,
): Promise<number | null | undefined> {
  const key = `${options.prefix ?? 'lock:'}${name}`;
  const surveys = await survey(target, options, [['PTTL', key]]);
  const answers = surveys.flatMap((each) => each.answers);
  const answer = answers.find(({ refused }) => !refused);
  if (answer === undefined) {
    const why = answers[0]?.text ?? surveys[0]?.failure ?? 'no server answered';
    const message = `cannot tell whether other code holds lock "${name}" on ${label}: ${why}`;
    throw new CliError('ERR_LOCK_SERVER', Exit.Unavailable, message, name);
  }
  const lease = Number(answer.text);
  if (lease === -2) return undefined;
  return lease < 0 ? null : lease;
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

function holderOf({ token, label, clientId, fence, ttl }: HeldLockInfo): Holder {
  const holder = { label, clientId, fence, lease: ttl };
  TOKENS.set(holder, token);
  return holder;
}

/** The tokens of the holders of a lock, to tell them from those before. */
export function tokensOf({ holders }: LockView): string[] {
  return holders.map((holder) => TOKENS.get(holder) ?? '');
}

function waiterOf({ label, clientId, mode, position }: PendingLockInfo): Waiter {
  return { label, clientId, mode, position };
}

/** The short name of a holder or waiter: its label, or the beginning of its client id. */
export function nameOf({ label, clientId }: Holder | Waiter): string {
  return label ?? clientId.slice(0, 8);
}

/** The fence of a share, which its server knows. */
export function fenceOf({ fence }: Holder): string {
  return fence === null ? '' : String(fence);
}

/** A row for each holder of each lock. */
export function rowsOf(views: readonly LockView[]): string[][] {
  return views.flatMap(({ name, mode, holders, waiters }) => {
    const waiting = waiters.length === 0 ? '' : String(waiters.length);
    if (holders.length === 0) return [[printable(name), '', 'nobody', '', '', waiting]];
    return holders.map((holder, i) => [
      i === 0 ? printable(name) : '',
      i === 0 ? (mode ?? '') : '',
      nameOf(holder),
      fenceOf(holder),
      leaseOf(holder),
      i === 0 ? waiting : '',
    ]);
  });
}

/** The heads of these rows. */
export const HEADS = ['NAME', 'MODE', 'HOLDER', 'FENCE', 'LEASE', 'WAITING'];

/** The lines of a table of locks. */
export function tableOf(views: readonly LockView[]): string[] {
  return table(HEADS, rowsOf(views));
}

/** How long a lease still lasts, for people. */
export function leaseOf({ lease }: Holder): string {
  return lease === null ? 'no end' : human(lease);
}
