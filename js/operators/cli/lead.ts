/** `holdfast lead`: a command that runs on one of several machines, for as long as that one leads. */

import type { Command } from 'commander';
import { defaultLabel } from '../../base/label.js';
import { leaderLockOf } from '../../base/names.js';
import { printable } from '../../base/printable.js';
import type { Term } from '../../lead/options.js';
import type { LockManager } from '../../manager/manager.js';
import { Exit, say } from './exit.js';
import {
  type CommandOptions,
  cleanEnvOption,
  graceOption,
  runUnder,
  Signals,
  ttlOption,
} from './guarded-command.js';
import { codeOf } from './job.js';
import { open, type PlaceOptions, whereOf, withPlace } from './options.js';
import { helpText } from './terminal.js';
import { tellHolder } from './waiting.js';

interface LeadOptions extends PlaceOptions, CommandOptions {
  readonly ttl: number;
  readonly label: string;
}

const HELP = `
Run it on each machine: the command runs on one of them. When it has ended, with any exit code, or its machine dies, the next
in the queue runs it, and this one campaigns again. After a term that was shorter than the lease it first pauses, from 100ms up
to 10s, twice as long each time. A signal goes to the command; when that has ended, or if it does not run, lead ends, too.

The command gets HOLDFAST_LOCK, which is leader: and the name, and HOLDFAST_FENCE, a number that is greater for every later
leader, in its environment; HOLDFAST_URL and REDIS_URL as with run. If it has options of its own, write -- before it.

Exit codes:
  after a signal that of the command; 128+n if it did not run
  64   wrong usage; nothing was sent
  69   the servers cannot be reached, or refused
  126  the command cannot be executed
  127  the command was not found

Examples:
  holdfast lead scheduler -- node scheduler.js
  holdfast lead relay --ttl 15s --grace 5s -- ./relay.sh --verbose
`;

/** Adds the command. */
export function addLead(program: Command, end: (code: number) => void): void {
  const command = program
    .command('lead')
    .summary('run a command on one of several machines')
    .description(
      'Run a command while this machine leads. It is started anew whenever this machine is elected, and stopped if the ' +
        'lead is lost.',
    )
    .argument('<name>', 'the name of the election')
    .argument('<command...>', 'the command and its arguments')
    .addOption(ttlOption())
    .option('--label <text>', 'who leads, for people', defaultLabel())
    .addOption(graceOption())
    .addOption(cleanEnvOption());
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (name: string, words: string[], options: LeadOptions) => {
      end(await lead(name, words, options));
    });
}

/** The command could not be started: it would not start in another term either. */
class NotStarted extends Error {
  constructor(readonly exit: number) {
    super();
  }
}

/** Campaigns until a signal comes, and answers the exit code. */
async function lead(name: string, words: readonly string[], options: LeadOptions): Promise<number> {
  const { ttl, label, json = false } = options;
  const signals = new Signals();
  const locks = await open(whereOf(options, ttl));
  const told = tellTerms(locks, name, json);
  /** The exit code of the command that got the signal. */
  let last: number | undefined;
  const term = async ({ lock, signal }: Term) => {
    if (signal.aborted) return;
    const { exit, ran } = await runUnder(lock, words, options, signals);
    signals.to(undefined);
    if (!ran) throw new NotStarted(exit);
    if (signals.told.aborted) last = exit;
    else if (!json && exit !== Exit.Lost) say(`the command has ended with exit code ${exit}`);
  };
  try {
    await locks.lead(name, { ttl, label, signal: signals.told }, term);
    return last ?? codeOf(signals.told.reason);
  } catch (error) {
    if (error instanceof NotStarted) return error.exit;
    throw error;
  } finally {
    told();
    await locks.close();
  }
}

/** Tells people when terms begin, and at a terminal who leads meanwhile, until the function that it returns is called. */
function tellTerms(locks: LockManager, name: string, json: boolean): () => void {
  const lock = leaderLockOf(name);
  let waited = tellHolder(locks, lock, json);
  locks.on('elected', ({ fence }) => {
    waited();
    if (!json) say(`leads "${printable(name)}" with fence ${fence}`);
  });
  locks.on('stepDown', () => {
    waited = tellHolder(locks, lock, json);
  });
  return () => waited();
}
