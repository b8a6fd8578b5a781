/** A command that runs under a lock: started, told signals, stopped. */

import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError, Exit } from './exit.js';

/** How often it is looked whether what the command has started is gone, in ms. */
const LOOK_MS = 20;
/** The login is for the locks alone. */
const LOGIN: readonly string[] = [
  'HOLDFAST_USERNAME',
  'HOLDFAST_PASSWORD',
  'HOLDFAST_SENTINEL_USERNAME',
  'HOLDFAST_SENTINEL_PASSWORD',
];
/** What a terminal sends to all that is in its foreground. */
const TYPED: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];

/** A command under way. */
export class Job {
  readonly #child: ChildProcess;
  /**
   * Without a terminal the command gets a process group of its own, so that signals reach all that it has
   * started. At a terminal it must stay in the group of the foreground, to which Ctrl-C goes.
   */
  readonly #group = process.stdin.isTTY !== true;
  /** Its exit code, as a shell tells it. */
  readonly ended: Promise<number>;

  constructor([program = '', ...args]: readonly string[], env: Readonly<Record<string, string>>) {
    this.#child = spawn(program, args, {
      stdio: 'inherit',
      detached: this.#group,
      env: { ...inherited(), ...env },
    });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once('error', (error) => reject(startError(program, error)));
      this.#child.once('exit', (code, signal) => resolve(code ?? codeOf(signal)));
    });
  }

  /** Hands on a signal that this process got, unless the terminal has sent it to the command as well. */
  tell(signal: NodeJS.Signals): void {
    if (this.#group || !TYPED.includes(signal)) this.#send(signal);
  }

  /** Ends the command: kindly, and by force if it has not ended after `grace` ms. */
  async stop(grace: number): Promise<void> {
    this.#send('SIGTERM');
    const end = performance.now() + grace;
    while (this.#alive && performance.now() < end) await sleep(LOOK_MS);
    if (this.#alive) this.#send('SIGKILL');
  }

  get #alive(): boolean {
    return this.#group ? this.#send(0) : this.#child.exitCode === null && !this.#child.signalCode;
  }

  /** Returns whether anybody got it. */
  #send(signal: NodeJS.Signals | 0): boolean {
    const { pid } = this.#child;
    if (pid === undefined) return false;
    if (!this.#group) return this.#child.kill(signal);
    try {
      return process.kill(-pid, signal);
    } catch {
      // All of them are gone.
      return false;
    }
  }
}

/** What the command gets of the environment. On Windows the case of names does not matter. */
function inherited(): NodeJS.ProcessEnv {
  const all = Object.entries(process.env);
  return Object.fromEntries(all.filter(([name]) => !LOGIN.includes(name.toUpperCase())));
}

/** Why the command did not start, with the exit codes of shells. */
function startError(program: string, { code, message }: NodeJS.ErrnoException): CliError {
  if (code === 'ENOENT') {
    return new CliError('ERR_NOT_FOUND', Exit.NotFound, `cannot run ${program}: it was not found`);
  }
  const why = code === 'EACCES' ? 'it is not executable' : message;
  return new CliError('ERR_NOT_EXECUTABLE', Exit.NotExecutable, `cannot run ${program}: ${why}`);
}

/** The exit code that stands for a signal. */
export function codeOf(signal: NodeJS.Signals | null): number {
  return Exit.Signal + (signal === null ? 0 : constants.signals[signal]);
}
