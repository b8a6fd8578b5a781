/** Programs that use the package in a process of their own. */

import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** Where self-references to the package resolve. */
export const ROOT = join(__dirname, '..', '..', '..');

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `source` as a module; `args` are its `process.argv.slice(1)`. */
export function run(source: string, ...args: readonly string[]): Promise<Ended> {
  const flags = ['--input-type=module', '--eval', source, '--', ...args];
  return ended(spawn(process.execPath, flags, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] }));
}

/** Waits until `child` has ended, and collects what it printed. */
export function ended(
  child: ChildProcessByStdio<Writable | null, Readable, Readable>,
): Promise<Ended> {
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  return new Promise((resolve) => {
    child.once('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}
