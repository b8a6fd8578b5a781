/** A command that runs while a lock is held, for `run` and `lead`. */

import { Option } from 'commander';
import type { Lock } from '../../lock/lock.js';
import { Exit, exitCodeOf, report } from './exit.js';
import { Job } from './job.js';
import { duration } from './options.js';

/** The options about the command. */
export interface CommandOptions {
  readonly grace: number;
  readonly cleanEnv?: true;
  readonly json?: boolean;
}

const TTL_MS = 10_000;
const GRACE_MS = 10_000;

/** The option `--ttl`. */
export function ttlOption(): Option {
  return new Option('--ttl <time>', 'the lease: how long others are blocked if this machine dies')
    .argParser(duration)
    .default(TTL_MS, '10s');
}

/** The option `--grace`. */
export function graceOption(): Option {
  return new Option('--grace <time>', 'the time from SIGTERM to SIGKILL when the lock is lost')
    .argParser(duration)
    .default(GRACE_MS, '10s');
}

/** The option `--clean-env`. */
export function cleanEnvOption(): Option {
  return new Option('--clean-env', 'do not pass HOLDFAST_URL and REDIS_URL to the command');
}

/** The exit code of the command, and whether it ran at all. */
interface Ran {
  readonly exit: number;
  readonly ran: boolean;
}

/** Runs the command while the lock is held, and stops it when the lock is lost. */
export async function runUnder(
  lock: Lock,
  words: readonly string[],
  options: CommandOptions,
  signals: Signals,
  more: Readonly<Record<string, string>> = {},
): Promise<Ran> {
  const ofLock = { HOLDFAST_LOCK: lock.name, HOLDFAST_FENCE: String(lock.fence) };
  try {
    const job = new Job(words, { more: { ...more, ...ofLock }, clean: options.cleanEnv === true });
    signals.to(job);
    return { exit: await endOf(job, lock, options), ran: true };
  } catch (error) {
    report(error, options.json === true);
    return { exit: exitCodeOf(error), ran: false };
  }
}

async function endOf(job: Job, lock: Lock, { grace, json = false }: CommandOptions) {
  let stopping: Promise<void> | undefined;
  const stop = () => {
    report(lock.signal.reason, json);
    stopping = job.stop(grace);
  };
  lock.signal.addEventListener('abort', stop);
  if (lock.signal.aborted) stop();
  try {
    const exit = await job.ended;
    await stopping;
    return stopping === undefined ? exit : Exit.Lost;
  } finally {
    lock.signal.removeEventListener('abort', stop);
  }
}

/** The signals that end this process: they end its wait for the lock; later the command gets them. */
export class Signals {
  readonly #waiting = new AbortController();
  readonly #told = new AbortController();
  #job: Job | undefined;

  constructor() {
    // Without a terminal of its own, Ctrl-Z would stop this process alone, and with it the renewal.
    if (process.stdin.isTTY !== true) process.on('SIGTSTP', () => {});
    for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        this.#told.abort(signal);
        if (this.#job === undefined) this.#waiting.abort(signal);
        else this.#job.tell(signal);
      });
    }
  }

  /** Aborted by a signal; the reason is its name. */
  get waiting(): AbortSignal {
    return this.#waiting.signal;
  }

  /** Aborted by a signal, also if the command gets it; the reason is its name. */
  get told(): AbortSignal {
    return this.#told.signal;
  }

  /** Passes the signals to `job` from now on; without one they end a wait again. */
  to(job: Job | undefined): void {
    this.#job = job;
    if (this.waiting.aborted) job?.tell(this.waiting.reason);
  }
}
