/** `holdfast ls` and `holdfast show`: the holders and waiters of locks. */

import type { Command } from 'commander';
import { printable } from '../../base/printable.js';
import { human, moment } from '../../base/time.js';
import {
  countsPermits,
  isDone,
  type LockView,
  listLocks,
  modeOf,
  nameOf,
  viewOf,
} from '../views/lock-views.js';
import { Observer } from '../views/observer.js';
import { EXIT_CODES, Exit } from './exit.js';
import { type ForeignHold, foreignHold, restOf } from './foreign.js';
import {
  fenceOf,
  headed,
  heldOf,
  leaseOf,
  type SortKey,
  sorted,
  sortOption,
  tableOf,
} from './lock-tables.js';
import { lockName, open, type PlaceOptions, whereOf, withPlace } from './options.js';
import { type Fit, helpText, print, printJson, table, wrapped } from './terminal.js';

interface LsOptions extends PlaceOptions {
  readonly sort: SortKey;
}

const LS_HELP = `
Every key of the database is looked at, a thousand at a time, which stops nobody. Locks of other code, which
have no label and no fence, are not told. Not for a quorum. HELD is the time since the holder asked for the lock, by its
clock: it has held the lock for that long, or for less (<) if it had to wait. WAITED is how long the first of the waiters
has waited. A slot of runOnce and of run --once that is done has the mode done: LEASE is how long it stays done, HOLDER who
ran it.

${EXIT_CODES}
Examples:
  holdfast ls
  holdfast ls --sort waiters | head
  holdfast ls 'item:*' --json | jq '.locks[].name'
  holdfast ls 'leader:*'                              # who leads
`;

const SHOW_HELP = `
${EXIT_CODES}
Examples:
  holdfast show nightly
  holdfast show nightly --json
`;

/** Adds both commands. */
export function addLs(program: Command, end: (code: number) => void): void {
  const ls = program
    .command('ls')
    .summary('list locks')
    .description('List the locks that are held or waited for.')
    .argument('[pattern]', 'names: * stands for any text, ? for one character', lockName, '*')
    .addOption(sortOption());
  withPlace(ls)
    .addHelpText('after', helpText(LS_HELP))
    .action(async (pattern: string, options: LsOptions) => {
      end(await list(pattern, options));
    });
  const show = program
    .command('show')
    .summary('show a lock, its holders and its wait queue')
    .description('Show the holders of a lock and its wait queue.')
    .argument('<name>', "the lock's name", lockName);
  withPlace(show)
    .addHelpText('after', helpText(SHOW_HELP))
    .action(async (name: string, options: PlaceOptions) => {
      end(await showOne(name, options));
    });
}

async function list(pattern: string, options: LsOptions): Promise<number> {
  const locks = await open(whereOf(options));
  const found = await listLocks(locks, pattern);
  await locks.close();
  const [observer, now] = [new Observer(), Date.now()];
  observer.look(found, now);
  const views = sorted(found, options.sort, observer, now);
  if (options.json === true) printJson({ locks: views });
  else if (views.length === 0) print('No lock is held or waited for.');
  else print(headed(tableOf(views, observer, now)));
  return Exit.Done;
}

async function showOne(name: string, options: PlaceOptions): Promise<number> {
  const where = whereOf(options);
  const locks = await open(where);
  const view = await viewOf(locks, name);
  await locks.close();
  const foreign = view.mode === null ? await foreignHold(where, name) : undefined;
  if (options.json === true) {
    const { lease } = foreign ?? {};
    printJson({ ...view, foreign: lease === undefined ? null : { lease } });
  } else print(described(view, foreign));
  return view.mode === null && foreign === undefined ? Exit.No : Exit.Done;
}

const FIT: Fit = {
  shorten: ['HOLDER', 'WAITER'],
  leave: ['ASKED', 'CLIENT', 'FENCE', 'MODE'],
};

function described(view: LockView, foreign?: ForeignHold): string {
  const { name, mode, holders, waiters } = view;
  const isSemaphore = countsPermits(view);
  const [observer, now] = [new Observer(), Date.now()];
  observer.look([view], now);
  const shown = `Lock "${printable(name)}"`;
  const queue = waiters.map((each) => [
    `${each.position}`,
    human(each.waited),
    each.mode,
    ...(isSemaphore ? [`${each.permits}`] : []),
    nameOf(each),
    each.clientId,
  ]);
  const permits = isSemaphore ? ['PERMITS'] : [];
  const queueHeads = ['POSITION', 'WAITED', 'MODE', ...permits, 'WAITER', 'CLIENT'];
  const waiting = waiters.length === 0 ? [] : ['', headed(table(queueHeads, queue, FIT))];
  if (foreign !== undefined) {
    return [`${shown} is held by other code ${restOf(foreign)}.`, ...waiting].join('\n');
  }
  if (mode === null) return [`${shown} is held by nobody.`, ...waiting].join('\n');
  const rows = holders.map((each) => [
    nameOf(each),
    ...(isSemaphore ? [`${each.permits}`] : []),
    each.clientId,
    fenceOf(each),
    each.askedAt === null ? '' : moment(each.askedAt),
    heldOf(each, observer, now),
    leaseOf(each),
  ]);
  const heads = ['HOLDER', ...permits, 'CLIENT', 'FENCE', 'ASKED', 'HELD', 'LEASE'];
  const held = headed(table(heads, rows, FIT));
  return [wrapped(`${shown} ${stateOf(view)}.`), '', held, ...waiting].join('\n');
}

/** How a lock is held, or until when a slot is done. */
function stateOf(view: LockView): string {
  const [holder] = view.holders;
  if (!isDone(view) || holder === undefined) return `is held, ${modeOf(view)}`;
  const { lease, result } = holder;
  const until = lease === null ? '' : ` until ${moment(new Date(Date.now() + lease))}`;
  return `marks a slot that is done${until}${result ? ', with its result' : ''}: its job does not run again before`;
}
