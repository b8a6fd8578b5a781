/** Tables of locks for people, as `ls`, `show` and `watch` print them. */

import { Option } from 'commander';
import { isLeaderLock } from '../../base/names.js';
import { printable } from '../../base/printable.js';
import { human } from '../../base/time.js';
import {
  type HolderView,
  isDone,
  type LockView,
  longestWait,
  modeOf,
  nameOf,
} from '../views/lock-views.js';
import type { Observer } from '../views/observer.js';
import { heldFor, restOf } from '../views/words.js';
import { type Fit, type Paint, paint, table } from './terminal.js';

/** The columns by which a table of locks can be sorted. */
export type SortKey = 'age' | 'name' | 'wait' | 'waiters';

/** The most waiters that a line names; it counts the others. */
const NAMED_MAX = 3;

/** The option `--sort`. */
export function sortOption(): Option {
  return new Option('--sort <by>', 'most waiters, longest wait, oldest hold or name first')
    .choices(['name', 'waiters', 'wait', 'age'] satisfies SortKey[])
    .default('name');
}

/** The locks in the order of `--sort`; those that are equal stay in the order of their names. */
export function sorted(
  views: readonly LockView[],
  by: SortKey,
  observer: Observer,
  now: number,
): LockView[] {
  const first = (view: LockView): number => {
    if (by === 'waiters') return view.waiters.length;
    if (by === 'wait') return longestWait(view);
    if (by === 'age') return isDone(view) ? 0 : observer.ageOf(view, now);
    return 0;
  };
  return [...views].sort((a, b) => first(b) - first(a));
}

/** The lines of a table of locks, for one look. */
export function tableOf(views: readonly LockView[], observer: Observer, now: number): string[] {
  const heads = [
    'NAME',
    'MODE',
    'HOLDER',
    'FENCE',
    'HELD',
    'LEASE',
    'WAITING',
    'WAITED',
    'WAITERS',
  ];
  const rows = rowsOf(views, (view, holder) => [
    heldOf(holder, observer, now),
    leaseOf(holder),
    ...queueOf(view),
  ]);
  return table(heads, rows, { ...FIT, colour: colourOf });
}

/** The lines of a table of locks that are watched. */
export function watchedTableOf(
  views: readonly LockView[],
  observer: Observer,
  now: number,
): string[] {
  const heads = ['NAME', 'MODE', 'HOLDER', 'FENCE', 'HELD', 'LEASE'];
  const queue = ['WAITING', 'CHANGES', 'WAITED', 'WAITERS'];
  const rows = rowsOf(views, (view, holder) => {
    const [waiting = '', ...rest] = queueOf(view);
    const changes = String(observer.changesOf(view.name));
    return [heldOf(holder, observer, now), leaseOf(holder), waiting, changes, ...rest];
  });
  return table([...heads, ...queue], rows, FIT);
}

/** What a table of locks does without where it is too wide. */
const FIT: Fit = {
  shorten: ['NAME', 'HOLDER', 'WAITERS'],
  leave: ['WAITERS', 'FENCE', 'MODE', 'CHANGES', 'WAITED', 'HELD', 'LEASE'],
};

/** A lock that nobody holds, a slot that is done, and a queue stand out; candidates wait as long as another leads. */
function colourOf(head: string, cell: string, [name = '']: readonly string[]): Paint | undefined {
  if (head === 'HOLDER' && cell === 'nobody') return 'dim';
  if (head === 'MODE' && cell === 'done') return 'green';
  if (head === 'LEASE' && cell === restOf(null)) return 'yellow';
  const isQueue = (head === 'WAITING' || head === 'WAITED') && cell !== '';
  return isQueue && !isLeaderLock(name) ? 'yellow' : undefined;
}

/** A row for each holder of each lock. What concerns the whole lock is in the first row alone. */
function rowsOf(
  views: readonly LockView[],
  rest: (view: LockView, holder: HolderView | undefined) => string[],
): string[][] {
  return views.flatMap((view) => {
    const { name, holders } = view;
    if (holders.length === 0)
      return [[printable(name), '', 'nobody', '', ...rest(view, undefined)]];
    return holders.map((holder, i) => {
      const whole = i === 0 ? view : { ...view, name: '', waiters: [] };
      const own = [ownerOf(holder), fenceOf(holder)];
      const ofLock = i === 0 ? [printable(name), modeOf(view)] : ['', ''];
      return [...ofLock, ...own, ...rest(whole, holder)];
    });
  });
}

/** The name of the holder; for a slot that is done, of the process that ran its job. */
function ownerOf(holder: HolderView): string {
  return holder.result ? `${nameOf(holder)} (result kept)` : nameOf(holder);
}

/** How many wait, how long the first of them has waited, and who. */
function queueOf(view: LockView): string[] {
  const { waiters } = view;
  if (waiters.length === 0) return ['', '', ''];
  const names = waiters.slice(0, NAMED_MAX).map(nameOf);
  const more = waiters.length - names.length;
  const named = names.join(', ') + (more > 0 ? ` +${more}` : '');
  return [String(waiters.length), human(longestWait(view)), named];
}

/** How long a holder has had the lock. */
export function heldOf(holder: HolderView | undefined, observer: Observer, now: number): string {
  // No process is at work on a slot that is done.
  if (holder?.state === 'done') return '';
  const hold = holder === undefined ? undefined : observer.holdOf(holder);
  if (hold === undefined) return '';
  // A single look knows nothing of a token that tells nothing.
  if (hold.began === 'or earlier' && hold.since === now) return '';
  return heldFor(hold, now);
}

/** The fence of a share, which its server knows. */
export function fenceOf({ fence }: HolderView): string {
  return fence === null ? '' : String(fence);
}

/** How long a lease still lasts, for people. */
export function leaseOf(holder: HolderView | undefined): string {
  return holder === undefined ? '' : restOf(holder.lease);
}

/** A table with its heads in bold. */
export function headed([heads = '', ...rows]: readonly string[]): string {
  return [paint(process.stdout, 'bold', heads), ...rows].join('\n');
}
