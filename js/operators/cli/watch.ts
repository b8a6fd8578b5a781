/** `holdfast watch`: a table of locks that is refreshed in place. */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { printable } from '../../base/printable.js';
import { clock } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';
import {
  freeLock,
  type HolderView,
  isDone,
  type LockView,
  listLocks,
  modeOf,
  nameOf,
  tokensOf,
} from '../views/lock-views.js';
import { Observer } from '../views/observer.js';
import { EXIT_CODES, Exit, exitCodeOf, say } from './exit.js';
import { fenceOf, type SortKey, sorted, sortOption, watchedTableOf } from './lock-tables.js';
import {
  duration,
  lockName,
  open,
  type PlaceOptions,
  type Where,
  whereOf,
  withPlace,
} from './options.js';
import { Screen } from './screen.js';
import { helpText, print, printJson } from './terminal.js';

interface WatchOptions extends PlaceOptions {
  readonly interval: number;
  readonly sort: SortKey;
}

const INTERVAL_MS = 1_000;
const INTERVAL_MS_MIN = 10;
const INTERVAL_MS_MAX = 24 * 3_600_000;

const HELP = `
On a terminal q or Ctrl-C ends it. HELD is how long the holder has had the lock. If it had it before the watch
began, that is the time since it asked for the lock, by its clock: it has held it for that long, or for less (<) if it had
to wait. Of a holder whose token does not tell that, HELD counts from the first look (>). WAITED is how long the first of
the waiters has waited. CHANGES counts how often a lock was seen with a new owner since the watch began: it was handed to
another process, or acquired anew, at least that often. Without a terminal, and with --json, it
writes a line for each change of a holder or of the wait queue.

Each look reads every key of the database: give it a longer --interval on a large one.

${EXIT_CODES}
Examples:
  holdfast watch 'item:*' --sort age
  holdfast watch --interval 10s --json >> locks.log
`;

/** Adds the command. */
export function addWatch(program: Command, end: (code: number) => void): void {
  const command = program
    .command('watch')
    .summary('watch locks change hands')
    .description('Show the locks that are held or waited for, and keep showing them.')
    .argument('[pattern]', 'names: * stands for any text, ? for one character', lockName, '*')
    .addOption(
      new Option('--interval <time>', 'how often to look')
        .argParser(interval)
        .default(INTERVAL_MS, '1s'),
    )
    .addOption(sortOption());
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (pattern: string, options: WatchOptions) => {
      end(await watch(pattern, options));
    });
}

/** A shorter interval is useless load, and timers do not reach much further than the longest one. */
function interval(text: string): number {
  const ms = duration(text);
  if (ms < INTERVAL_MS_MIN || ms > INTERVAL_MS_MAX) {
    throw new InvalidArgumentError('Give an interval from 10ms to 24h.');
  }
  return ms;
}

async function watch(pattern: string, options: WatchOptions): Promise<number> {
  const where = whereOf(options);
  const locks = await open(where);
  const ended = new AbortController();
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => ended.abort());
  }
  const asLines = options.json === true || !process.stdout.isTTY;
  const follow = asLines ? followInLines : followOnScreen;
  await follow({ locks, where, pattern, options, ended });
  await locks.close();
  return Exit.Done;
}

interface Watch {
  readonly locks: LockManager;
  readonly where: Where;
  readonly pattern: string;
  readonly options: WatchOptions;
  readonly ended: AbortController;
}

async function followOnScreen({ locks, where, pattern, options, ended }: Watch): Promise<void> {
  const observer = new Observer();
  const screen = new Screen(() => ended.abort());
  try {
    while (!ended.signal.aborted) {
      screen.show(await frame());
      await pause(options.interval, ended.signal);
    }
  } finally {
    screen.close();
  }

  async function frame(): Promise<string[]> {
    const title = `${where.label}  ${printable(pattern)}  ${clock(new Date())}  q quits`;
    try {
      const views = await listLocks(locks, pattern);
      const now = Date.now();
      observer.look(views, now);
      const rows = sorted(views, options.sort, observer, now);
      return [title, '', ...watchedTableOf(rows, observer, now)];
    } catch (error) {
      observer.missed();
      return [title, '', failureOf(error)];
    }
  }
}

/** The message of an error. The next look may succeed, except after a usage error, which is thrown. */
function failureOf(error: unknown): string {
  if (exitCodeOf(error) === Exit.Usage) throw error;
  return (error as Error).message;
}

/** The line that is written when a lock has changed. */
interface Line {
  readonly time: string;
  readonly lock: LockView;
}

async function followInLines({ locks, pattern, options, ended }: Watch): Promise<void> {
  let known = new Map<string, string>();
  let failure = '';
  while (!ended.signal.aborted) {
    try {
      known = tell(known, await listLocks(locks, pattern), options.json === true);
      failure = '';
    } catch (error) {
      const message = failureOf(error);
      if (message !== failure) say(message);
      failure = message;
    }
    await pause(options.interval, ended.signal);
  }
}

/** Writes a line for each lock that has changed, and answers the present state of all. */
function tell(
  known: ReadonlyMap<string, string>,
  views: readonly LockView[],
  json: boolean,
): Map<string, string> {
  const now = new Map(views.map((view) => [view.name, essence(view)]));
  const gone = [...known.keys()].filter((name) => !now.has(name));
  const nobody = gone.map(freeLock);
  const time = new Date().toISOString();
  for (const lock of [...views, ...nobody]) {
    if (known.get(lock.name) === now.get(lock.name)) continue;
    const line: Line = { time, lock };
    if (json) printJson(line);
    else print(sentence(line));
  }
  return now;
}

/** The state whose change counts: the holders and the number of waiters, but not the leases. */
function essence(view: LockView): string {
  return JSON.stringify([view.mode, tokensOf(view), view.waiters.length]);
}

function sentence({ time, lock }: Line): string {
  const { name, mode, holders, waiters } = lock;
  const who = holders.map(described).join(', ');
  const how = isDone(lock) ? 'done' : `held, ${modeOf(lock)}`;
  const held = mode === null ? 'free' : `${how}, by ${who}`;
  const line = waiters.length === 0 ? '' : `, ${waiters.length} waiting`;
  return `${time} ${printable(name)}: ${held}${line}`;
}

function described(holder: HolderView): string {
  const fence = fenceOf(holder);
  return fence === '' ? nameOf(holder) : `${nameOf(holder)} (fence ${fence})`;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  // An early end is no error.
  await sleep(ms, undefined, { signal }).catch(() => {});
}
