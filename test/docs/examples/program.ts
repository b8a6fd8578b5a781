/** The programs of the examples, as processes of their own. */

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { ROOT } from '../../support/child.js';
import { until } from '../../support/wait.js';

/** What runs now: a test file that ends takes it along. */
const running = new Set<ChildProcess>();
const killAll = () => {
  for (const child of running) child.kill('SIGKILL');
};
after(killAll);
process.once('exit', killAll);

export class Program {
  /** What it has said. */
  readonly lines: string[] = [];
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | NodeJS.Signals | null>;

  /** Starts `file` of the examples, such as `leader/node.mjs`. */
  constructor(file: string, env: Readonly<Record<string, string>>, ...args: string[]) {
    const path = join(ROOT, 'examples', file);
    const child = spawn(process.execPath, [path, ...args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    running.add(child);
    for (const stream of [child.stdout, child.stderr]) {
      createInterface(stream).on('line', (line) => this.lines.push(line));
    }
    this.#ended = new Promise((resolve) => {
      child.once('close', (code, signal) => {
        running.delete(child);
        resolve(code ?? signal);
      });
    });
  }

  /** Whether it has not ended. */
  get alive(): boolean {
    return running.has(this.#child);
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Its exit code, or the signal that ended it, once it has ended and all that it said is known. */
  ended(): Promise<number | NodeJS.Signals | null> {
    return this.#ended;
  }

  /** Waits until it has said something. */
  async says(what: RegExp): Promise<void> {
    await until(
      () => {
        if (this.lines.some((line) => what.test(line))) return true;
        if (!this.alive) throw new Error(`it ended without ${what}:\n${this.lines.join('\n')}`);
        return false;
      },
      `${what} of a program that says\n${this.lines.join('\n')}`,
    );
  }
}
