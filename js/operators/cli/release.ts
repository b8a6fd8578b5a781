/** `holdfast release`: takes a lock away from its holder. */

import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { printable } from '../../base/printable.js';
import { isDone, type LockView, nameOf, tokensOf, viewOf } from '../views/lock-views.js';
import { EXIT_CODES, Exit, say, UsageError } from './exit.js';
import { type ForeignHold, foreignHold, restOf } from './foreign.js';
import { leaseOf } from './lock-tables.js';
import { lockName, open, type PlaceOptions, type Where, whereOf, withPlace } from './options.js';
import { helpText, print, printJson } from './terminal.js';

interface ReleaseOptions extends PlaceOptions {
  readonly done?: true;
  readonly foreign?: true;
  readonly yes?: true;
}

const HELP = `
The next waiter gets the lock at once. The holder is notified, and what it does until it has stopped is no longer
protected: stop it first, if you can. Of a slot of runOnce that is done the mark is removed, so its job may run again; in a
script that needs --done.

${EXIT_CODES}
Examples:
  holdfast release nightly
  holdfast release nightly --yes --json    # in a script
`;

/** Adds the command. */
export function addRelease(program: Command, end: (code: number) => void): void {
  const command = program
    .command('release')
    .summary('take a lock away from its holder')
    .description('Take a lock away from its holder. Asks first.')
    .argument('<name>', "the lock's name", lockName)
    .option('--done', 'also a slot of runOnce that is done: its job may run again')
    .option('--foreign', 'also delete the value of other code than holdfast')
    .option('-y, --yes', 'do not ask');
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (name: string, options: ReleaseOptions) => {
      end(await release(name, options));
    });
}

async function release(name: string, options: ReleaseOptions): Promise<number> {
  const asks = options.yes !== true;
  if (asks && !(process.stdin.isTTY && process.stderr.isTTY)) {
    throw new UsageError('there is no terminal to ask on: add --yes to confirm');
  }
  const where = whereOf(options);
  const locks = await open(where);
  const view = await viewOf(locks, name);
  const foreign = view.mode === null ? await foreignHold(where, name) : undefined;
  if (!asks && isDone(view) && options.done !== true) {
    await locks.close();
    const advice = 'add --done to remove that mark, and its job may run again';
    say(`Lock "${printable(name)}" marks a slot that is done: ${advice}. Nothing was done.`);
    if (options.json === true) printJson({ name, released: false, holders: [] });
    return Exit.No;
  }
  const found = { view, foreign: options.foreign === true ? foreign : undefined };
  if (asks && isHeld(found) && !(await agreed(found, where))) {
    await locks.close();
    print('Nothing was done.');
    return Exit.No;
  }
  // A holder that got the lock after the question was shown keeps it.
  const token = asks ? tokensOfFound(found) : undefined;
  const released =
    (isHeld(found) || !asks) &&
    (await locks.forceRelease(name, { foreign: options.foreign === true, token }));
  await locks.close();
  if (options.json === true) {
    printJson({ name, released, holders: released ? view.holders : [] });
  } else print(told(found, released, foreign !== undefined));
  return released ? Exit.Done : Exit.No;
}

/** The subject of the question to a person: the lock, and the hold of other code if that is to be ended, too. */
interface Found {
  readonly view: LockView;
  readonly foreign: ForeignHold | undefined;
}

function isHeld({ view, foreign }: Found): boolean {
  return view.mode !== null || foreign !== undefined;
}

/** The tokens for `forceRelease`; a value that is no text cannot be compared. */
function tokensOfFound({ view, foreign }: Found): readonly string[] | undefined {
  const tokens = foreign === undefined ? tokensOf(view) : [foreign.value].filter(isText);
  return tokens.length === 0 ? undefined : tokens;
}

function isText(value: string | null): value is string {
  return value !== null;
}

function told(found: Found, released: boolean, foreign: boolean): string {
  const shown = `Lock "${printable(found.view.name)}"`;
  if (released && isDone(found.view)) return `${shown} marks no slot as done any more.`;
  if (released) return `${shown} was released.`;
  if (isHeld(found)) return `${shown} is not held by the same any more: nothing was done.`;
  if (foreign) return `${shown} is held by other code: add --foreign to delete its value.`;
  return `${shown} is held by nobody.`;
}

/** Shows the holders, and asks at the terminal. */
async function agreed(found: Found, where: Where): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ended = new AbortController();
  // Ctrl-C and Ctrl-D mean no.
  terminal.once('close', () => ended.abort());
  try {
    const question = `${concern(found, where)} Release it? [y/N] `;
    const answer = await terminal.question(question, { signal: ended.signal });
    return /^y(es)?$/i.test(answer.trim());
  } catch {
    process.stderr.write('\n');
    return false;
  } finally {
    terminal.close();
  }
}

function concern({ view, foreign }: Found, where: Where): string {
  const { name, mode, holders, waiters } = view;
  const shown = `Lock "${printable(name)}" on ${where.label}`;
  const queue = waiters.length === 0 ? '' : ` ${waiters.length} waiting.`;
  if (foreign !== undefined) {
    return `${shown} is held by other code ${restOf(foreign)}.${queue}`;
  }
  if (isDone(view)) {
    const marked = holders.map((each) => `${nameOf(each)}, for ${leaseOf(each)} more`).join(', ');
    return `${shown} marks a slot as done, by ${marked}. Without the mark its job may run again.${queue}`;
  }
  const who = holders.map((each) => `${nameOf(each)} (lease ${leaseOf(each)})`);
  return `${shown} is held, ${mode}, by ${who.join(', ')}.${queue}`;
}
