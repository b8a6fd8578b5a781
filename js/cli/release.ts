/** `holdfast release`: takes a lock away from its holder. */

import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { human } from '../internal/human.js';
import { type LockView, nameOf, viewOf } from '../internal/lock-views.js';
import { EXIT_CODES, Exit, UsageError } from './exit.js';
import { foreignLease } from './foreign.js';
import { leaseOf } from './lock-tables.js';
import { open, type PlaceOptions, type Where, whereOf, withPlace } from './options.js';
import { print, printable } from './terminal.js';

interface ReleaseOptions extends PlaceOptions {
  readonly foreign?: true;
  readonly yes?: true;
}

const HELP = `
The next waiter gets the lock at once. The holder is notified, and what it does until it has stopped is no longer
protected: stop it first, if you can.

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
    .argument('<name>', "the lock's name")
    .option('--foreign', 'also delete the value of other code than holdfast')
    .option('-y, --yes', 'do not ask');
  withPlace(command)
    .addHelpText('after', HELP)
    .action(async (name: string, options: ReleaseOptions) => {
      end(await release(name, options));
    });
}

async function release(name: string, options: ReleaseOptions): Promise<number> {
  if (options.yes !== true && !(process.stdin.isTTY && process.stderr.isTTY)) {
    throw new UsageError('there is no terminal to ask on: add --yes to confirm');
  }
  const where = whereOf(options);
  const locks = await open(where);
  const view = await viewOf(locks, name);
  if (options.yes !== true && !(await agreed(view, where, options))) {
    await locks.close();
    print('Nothing was done.');
    return Exit.No;
  }
  const released = await locks.forceRelease(name, { foreign: options.foreign === true });
  await locks.close();
  const foreign = released ? undefined : await foreignLease(where, name);
  if (options.json === true) {
    print(JSON.stringify({ name, released, holders: released ? view.holders : [] }));
  } else print(told(name, released, foreign !== undefined));
  return released ? Exit.Done : Exit.No;
}

function told(name: string, released: boolean, foreign: boolean): string {
  const shown = `Lock "${printable(name)}"`;
  if (released) return `${shown} was released.`;
  if (foreign) return `${shown} is held by other code: add --foreign to delete its value.`;
  return `${shown} is held by nobody.`;
}

/** Shows the holders, and asks at the terminal. */
async function agreed(view: LockView, where: Where, options: ReleaseOptions): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ended = new AbortController();
  // Ctrl-C and Ctrl-D mean no.
  terminal.once('close', () => ended.abort());
  try {
    const question = `${await concern(view, where, options)} Release it? [y/N] `;
    const answer = await terminal.question(question, { signal: ended.signal });
    return /^y(es)?$/i.test(answer.trim());
  } catch {
    process.stderr.write('\n');
    return false;
  } finally {
    terminal.close();
  }
}

async function concern(
  { name, mode, holders, waiters }: LockView,
  where: Where,
  { foreign }: ReleaseOptions,
): Promise<string> {
  const shown = `Lock "${printable(name)}" on ${where.label}`;
  const queue = waiters.length === 0 ? '' : ` ${waiters.length} waiting.`;
  if (mode !== null) {
    const who = holders.map((each) => `${nameOf(each)} (lease ${leaseOf(each)})`);
    return `${shown} is held, ${mode}, by ${who.join(', ')}.${queue}`;
  }
  const lease = foreign === true ? await foreignLease(where, name) : undefined;
  if (lease === undefined) return `${shown} is not held by a client of holdfast.${queue}`;
  const left = lease === null ? 'without an end to its lease' : `for ${human(lease)} more`;
  return `${shown} is held by other code ${left}.${queue}`;
}
