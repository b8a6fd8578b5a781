/** Programs that use the package and are watched, and killed, while they run. */

import { type ChildProcess, spawn } from 'node:child_process';
import { ROOT } from './child.js';
import { until } from './wait.js';

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** A program under way. */
export interface Program {
  /** What it has printed so far. */
  readonly output: string;
  readonly child: ChildProcess;
  /** Waits until it has printed `text`; fails after `limit` ms, 20 s by default. */
  said(text: string, limit?: number): Promise<void>;
  /** Kills it, and waits for its end. */
  kill(): Promise<void>;
}

/** Starts a file with `args`, or `source` as a module, whose `process.argv.slice(1)` they are. */
export function spawnProgram(source: string, ...args: readonly string[]): Program {
  const isFile = /^\S+\.[cm]?js$/.test(source);
  const flags = isFile ? [source] : ['--input-type=module', '--eval', source, '--'];
  const child = spawn(process.execPath, [...flags, ...args], { cwd: ROOT, stdio: 'pipe' });
  running.add(child);
  let output = '';
  const gone = new Promise((resolve) => child.once('exit', resolve));
  void gone.then(() => running.delete(child));
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output += chunk;
    });
  }
  return {
    child,
    get output() {
      return output;
    },
    said: (text, limit) =>
      until(
        () => {
          if (output.includes(text)) return true;
          if (running.has(child)) return false;
          throw new Error(`the program ended without saying ${text}:\n${output}`);
        },
        text,
        limit,
      ),
    kill: async () => {
      child.kill('SIGKILL');
      await gone;
    },
  };
}
