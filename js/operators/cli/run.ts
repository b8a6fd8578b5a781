/** `holdfast run`: a command under a lock. */

import { type Command, InvalidArgumentError, Option } from 'commander';
import { LockLostError } from '../../base/errors.js';
import { defaultLabel } from '../../base/label.js';
import { readDuration } from '../../base/time.js';
import type { Lock, LockMode } from '../../lock/lock.js';
import { TTL_MS_MAX, TTL_MS_MIN } from '../../lock/times.js';
import type { LockManager } from '../../manager/manager.js';
import { leaveToExpireAtExit } from '../../native/operations.js';
import { restOf, shortName } from '../views/words.js';
import { CliError, Exit, exitCodeOf, report, UsageError } from './exit.js';
import {
  type CommandOptions,
  cleanEnvOption,
  graceOption,
  runUnder,
  Signals,
  ttlOption,
} from './guarded-command.js';
import { codeOf } from './job.js';
import { duration, open, type PlaceOptions, whereOf, whole, withPlace } from './options.js';
import { helpText } from './terminal.js';
import { tellHolder } from './waiting.js';

interface RunOptions extends PlaceOptions, CommandOptions {
  readonly ttl: number;
  readonly wait: number;
  readonly ifAvailable?: true;
  readonly conflictExitCode: number;
  readonly mode: LockMode;
  readonly limit?: number;
  readonly permits?: number;
  readonly atLeast?: number;
  readonly label: string;
  readonly once?: string;
  readonly retry?: true;
  readonly keep?: number;
}

const WAIT_MS = 10_000;
const LIMIT_MAX = Number.MAX_SAFE_INTEGER;

const HELP = `
The command gets HOLDFAST_LOCK, the name, and HOLDFAST_FENCE, a number that is greater for every later
owner, in its environment; with --once also HOLDFAST_SLOT, the name of the slot. It gets HOLDFAST_URL and REDIS_URL, with the
passwords in them, unless --clean-env withholds them. If it has options of its own, write -- before it.

Exit codes:
  the command's own; 128+n if signal n ended it
  64   wrong usage; nothing was sent
  69   the servers cannot be reached, or refused; the command was not run
  75   another client holds the lock, or the slot of --once is done; the command was not run (see -E)
  76   the lock was lost while the command ran, so the command was stopped
  126  the command cannot be executed
  127  the command was not found

Examples:
  holdfast run deploy -- ./deploy.sh --now
  holdfast run report --wait 30s -- node report.js
  holdfast run leader --wait forever -- ./lead.sh
  holdfast run api --mode shared --limit 4 -- ./import.sh
  # in the crontab of every machine:
  holdfast run nightly --once 1d -E 0 -- ./nightly.sh
  holdfast run invoices --once 2026-01 --keep 60d --retry -- ./invoices.sh
`;

/** Adds the command. */
export function addRun(program: Command, end: (code: number) => void): void {
  const command = program
    .command('run')
    .summary('run a command while holding a lock')
    .description(
      'Run a command while holding a lock. The lock is renewed as long as the command runs, and released ' +
        'when it has ended. If it is lost, the command is stopped.',
    )
    .argument('<name>', "the lock's name")
    .argument('<command...>', 'the command and its arguments')
    .addOption(ttlOption())
    .addOption(
      new Option('--wait <time>', 'how long to wait for the lock, or forever')
        .argParser(patience)
        .default(WAIT_MS, '10s')
        .conflicts('ifAvailable'),
    )
    .option('--if-available', 'do not wait')
    .option('-E, --conflict-exit-code <n>', 'if it is not free', whole(0, 255), Exit.Conflict)
    .addOption(
      new Option('--mode <mode>', 'whether to hold the lock alone, or together with others')
        .choices(['exclusive', 'shared'])
        .default('exclusive'),
    )
    .option('--limit <n>', 'with --mode shared: the largest number of holders', whole(1, LIMIT_MAX))
    .option(
      '--permits <n>',
      'with --limit: how many of them this one counts as',
      whole(1, LIMIT_MAX),
    )
    .option(
      '--at-least <time>',
      'hold the lock at least this long, even if the command ends sooner',
      upToALease,
    )
    .addOption(
      new Option(
        '--once <slot>',
        'run the command once per slot: a length such as 1h, or any other name',
      ).conflicts(['mode', 'limit', 'permits', 'atLeast']),
    )
    .option('--retry', 'with --once: if the command fails, the slot may be run again')
    .option('--keep <time>', 'with --once: how long to remember the slot', duration)
    .option('--label <text>', 'who holds it, for people', defaultLabel())
    .addOption(graceOption())
    .addOption(cleanEnvOption());
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (name: string, words: string[], options: RunOptions) => {
      end(await run(name, words, options));
    });
}

function patience(text: string): number {
  return text === 'forever' ? Number.POSITIVE_INFINITY : duration(text);
}

function upToALease(text: string): number {
  const ms = duration(text);
  if (ms <= TTL_MS_MAX) return ms;
  throw new InvalidArgumentError(`No lease is longer than ${TTL_MS_MAX} ms.`);
}

/** Takes the lock, runs the command, and answers the exit code. */
async function run(name: string, words: readonly string[], options: RunOptions): Promise<number> {
  if (options.once !== undefined) return runOnce(options.once, name, words, options);
  for (const option of ['retry', 'keep'] as const) {
    if (options[option] !== undefined) throw new UsageError(`--${option} is for --once`);
  }
  const signals = new Signals();
  const locks = await open(whereOf(options, Math.max(options.ttl, options.atLeast ?? 0)));
  let lock: Lock | number | undefined;
  try {
    lock = await take(locks, name, options, signals.waiting);
  } finally {
    // Where it failed, the lock may have been granted all the same.
    if (typeof lock !== 'object') await locks.close();
  }
  if (typeof lock === 'number') return lock;
  const acquired = performance.now();
  const { exit, ran } = await runUnder(lock, words, options, signals);
  const left = (options.atLeast ?? 0) - (performance.now() - acquired);
  const leftToExpire = ran && left > 0 && lock.held;
  const lost = await isLost(options, async () => {
    if (leftToExpire) await leaveToExpire(lock, Math.ceil(left));
    else if (!(await lock.release()) && exit !== Exit.Lost) {
      throw new CliError('ERR_LOCK_LOST', Exit.Lost, `lock "${name}" had been lost`, name);
    }
  });
  // Closing the manager would release the lock.
  if (leftToExpire) leaveToExpireAtExit();
  else await locks.close();
  return lost ? Exit.Lost : exit;
}

/** Takes the lock, or answers the exit code. */
async function take(
  locks: LockManager,
  name: string,
  options: RunOptions,
  signal: AbortSignal,
): Promise<Lock | number> {
  const { ttl, mode, limit, permits, label, wait, json = false } = options;
  const waited = tellHolder(locks, name, json);
  const wanted = { ttl, mode, label, limit, permits };
  try {
    if (options.ifAvailable !== true) return await locks.acquire(name, { ...wanted, wait, signal });
    const lock = await locks.tryAcquire(name, wanted);
    if (lock !== null) return lock;
    const who = options.conflictExitCode === 0 ? '' : await heldBy(locks, name);
    throw new CliError('ERR_LOCK_HELD', Exit.Conflict, `lock "${name}" is not free${who}`, name);
  } catch (error) {
    if (signal.aborted) return codeOf(signal.reason);
    if (exitCodeOf(error) !== Exit.Conflict) throw error;
    // A caller that asks for success wants no message, for instance in a mail of cron.
    if (options.conflictExitCode !== 0) report(error, json);
    return options.conflictExitCode;
  } finally {
    waited();
  }
}

/** Who holds a lock, for the message that it is not free; nothing where that is not known. */
async function heldBy(locks: LockManager, name: string): Promise<string> {
  const { held } = await locks.query({ name }).catch(() => ({ held: [] }));
  const [holder, ...others] = held;
  if (holder === undefined) return '';
  const { state, label, clientId, ttl } = holder;
  const who = state === 'foreign' ? 'other code' : shortName(label, clientId);
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  return `: it is held by ${who}${more}, lease ${restOf(ttl)}`;
}

/** The failure of a command that may be run again for the same slot. */
class Failed extends Error {
  constructor(readonly exit: number) {
    super();
  }
}

/** Runs the command unless its slot is done, and answers the exit code. */
async function runOnce(
  once: string,
  name: string,
  words: readonly string[],
  options: RunOptions,
): Promise<number> {
  const { json = false, retry = false, ttl, label, keep } = options;
  const signals = new Signals();
  const locks = await open(whereOf(options));
  const wait = options.ifAvailable ? 0 : options.wait;
  const every = readDuration(once);
  const slot = every === undefined ? { slot: once } : { every };
  const given = { ...slot, keep, retry, ttl, label, wait, signal: signals.waiting };
  const waited = tellHolder(locks, name, json);
  let exit: number | undefined;
  try {
    const result = await locks.runOnce(name, given, async (lock, ofSlot) => {
      waited();
      ({ exit } = await runUnder(lock, words, options, signals, { HOLDFAST_SLOT: ofSlot }));
      if (retry && exit !== 0 && lock.held) throw new Failed(exit);
      return exit;
    });
    if (result.ran) return result.value;
    if (options.conflictExitCode === 0) return 0;
    const who = result.reason === 'done' ? '' : await heldBy(locks, name);
    const why = result.reason === 'done' ? `: slot ${result.slot} is done` : ` is not free${who}`;
    report(new CliError('ERR_LOCK_HELD', Exit.Conflict, `lock "${name}"${why}`, name), json);
    return options.conflictExitCode;
  } catch (error) {
    if (error instanceof Failed) return error.exit;
    if (signals.waiting.aborted) return codeOf(signals.waiting.reason);
    // The loss of the lock itself has been reported, since it stopped the command.
    if (error instanceof LockLostError && error.lock === name) return Exit.Lost;
    if (exit === undefined || error instanceof LockLostError) throw error;
    // The command has run; with --retry the slot may be run again.
    report(error, json);
    return exit;
  } finally {
    waited();
    await locks.close();
  }
}

/** Makes the lease last at least `left` ms from now. */
async function leaveToExpire(lock: Lock, left: number): Promise<void> {
  if (lock.remaining < left) await lock.extend(Math.max(left, TTL_MS_MIN));
}

/** Calls `giveUp` after the command has ended, and answers whether the lock had been lost. */
async function isLost({ json = false }: RunOptions, giveUp: () => Promise<void>): Promise<boolean> {
  try {
    await giveUp();
    return false;
  } catch (error) {
    // Any other error changes nothing: the command has run, and the lease ends by itself.
    report(error, json);
    return exitCodeOf(error) === Exit.Lost;
  }
}
