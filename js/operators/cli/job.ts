/** A command that runs under a lock: starts it, passes signals to it, stops it. */

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError, Exit } from './exit.js';

/** How often `stop` checks whether the command's processes are gone, in ms. */
const LOOK_MS = 20;
/** The variables that the command does not get: the login is for locks alone. */
const LOGIN: readonly string[] = [
  'HOLDFAST_USERNAME',
  'HOLDFAST_PASSWORD',
  'HOLDFAST_SENTINEL_USERNAME',
  'HOLDFAST_SENTINEL_PASSWORD',
];
/** The variables that name a server, and may have a login in them: the command may use the same one. */
const SERVER: readonly string[] = ['HOLDFAST_URL', 'REDIS_URL'];
/** The signals that a terminal sends to every process in its foreground. */
const TYPED: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];

/** The variables that a command gets in its environment. */
interface JobEnvironment {
  /** The variables that it gets besides those of this process. */
  readonly more: Readonly<Record<string, string>>;
  /** Whether it gets no URL of a server, which may have a login. */
  readonly clean: boolean;
}

/** A command under way. */
export class Job {
  readonly #child: ChildProcess;
  /**
   * Without a terminal the command gets a process group of its own, so that signals reach all its processes. At a
   * terminal it must stay in the foreground group, to which Ctrl-C goes. Windows has no such groups: there the command
   * alone is ended, at once.
   */
  readonly #group = process.platform !== 'win32' && process.stdin.isTTY !== true;
  /** The exit code of the command, as a shell reports it. */
  readonly ended: Promise<number>;

  /** Throws what the system says against the command, if it says so at once; else `ended` rejects with it. */
  constructor([program = '', ...args]: readonly string[], { more, clean }: JobEnvironment) {
    const env = { ...inherited(clean ? [...LOGIN, ...SERVER] : LOGIN), ...more };
    this.#child = spawned(program, args, { stdio: 'inherit', detached: this.#group, env });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once('error', (error) => reject(startError(program, error)));
      this.#child.once('exit', (code, signal) => resolve(code ?? codeOf(signal)));
    });
  }

  /** Passes on a signal that this process got, unless the terminal has sent it to the command as well. */
  tell(signal: NodeJS.Signals): void {
    if (this.#group || !TYPED.includes(signal)) this.#send(signal);
  }

  /** Ends the command by SIGTERM, and by SIGKILL if it has not ended after `grace` ms. */
  async stop(grace: number): Promise<void> {
    this.#send('SIGTERM');
    const end = performance.now() + grace;
    while (this.#alive && performance.now() < end) await sleep(LOOK_MS);
    if (this.#alive) this.#send('SIGKILL');
  }

  get #alive(): boolean {
    const ended = this.#child.exitCode !== null || this.#child.signalCode !== null;
    if (!this.#group || !ended) return !ended;
    return this.#send(0) && hasLiving(this.#child.pid as number);
  }

  /** Returns whether a process got the signal. */
  #send(signal: NodeJS.Signals | 0): boolean {
    const { pid } = this.#child;
    if (pid === undefined) return false;
    if (!this.#group) return this.#child.kill(signal);
    try {
      return process.kill(-pid, signal);
    } catch {
      // No process is left in the group.
      return false;
    }
  }
}

/**
 * Whether a process group has more than zombies: these are in it until their parent has taken note of their end, which some
 * programs that are PID 1 of a container do late or never. Only Linux tells.
 */
function hasLiving(group: number): boolean {
  if (process.platform !== 'linux') return true;
  return readdirSync('/proc').some((pid) => /^\d+$/.test(pid) && isLiving(pid, group));
}

function isLiving(pid: string, group: number): boolean {
  try {
    // "pid (program) state parent group …": a program may have any name.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, , own] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(own) === group && state !== 'Z' && state !== 'X';
  } catch {
    // It has ended meanwhile.
    return false;
  }
}

/** The environment of the command. On Windows the case of names does not matter. */
function inherited(withheld: readonly string[]): NodeJS.ProcessEnv {
  const all = Object.entries(process.env);
  return Object.fromEntries(all.filter(([name]) => !withheld.includes(name.toUpperCase())));
}

/** Node tells by an event only of some of the reasons why the system starts no command, and throws the others. */
function spawned(program: string, args: readonly string[], options: SpawnOptions): ChildProcess {
  try {
    return spawn(program, args, options);
  } catch (error) {
    const { errno } = error as NodeJS.ErrnoException;
    throw errno === undefined ? error : startError(program, error as NodeJS.ErrnoException);
  }
}

/** The error of a command that did not start, with the exit code of a shell. */
function startError(program: string, { code, message }: NodeJS.ErrnoException): CliError {
  if (code === 'ENOENT') {
    return new CliError('ERR_NOT_FOUND', Exit.NotFound, `cannot run ${program}: it was not found`);
  }
  const why = code === 'EACCES' ? 'it is not executable' : message;
  return new CliError('ERR_NOT_EXECUTABLE', Exit.NotExecutable, `cannot run ${program}: ${why}`);
}

/** The exit code for a signal. */
export function codeOf(signal: NodeJS.Signals | null): number {
  return Exit.Signal + (signal === null ? 0 : constants.signals[signal]);
}
