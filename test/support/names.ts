/** Names of hosts whose addresses a test changes, as a managed service does when it fails over. */

import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Ended, ended, ROOT } from './child.js';
import { removeFolder } from './folders.js';
import { needs } from './tools.js';

const compiler = needs('compiler');
const source = join(ROOT, 'test', 'support', 'names.c');

/** The reason why no name can be given an address on this system, if there is one. */
export const NO_NAMES =
  process.platform === 'linux'
    ? undefined
    : 'names can be given addresses on Linux alone, which also has all of 127.0.0.0/8';

/** Runs a program of tests in a process in which {@link setAddress} works. */
export async function runWithNames(program: string): Promise<Ended> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-names-'));
  try {
    const library = join(folder, 'names.so');
    const words = ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'];
    await promisify(execFile)(compiler('cc'), words);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const names = { LD_PRELOAD: library, HOLDFAST_NAMES: join(folder, 'names') };
    const stdio = ['ignore', 'pipe', 'pipe'] as const;
    const child = spawn(process.execPath, ['--enable-source-maps', program], {
      env: { ...env, ...names },
      stdio: [...stdio],
    });
    return await ended(child);
  } finally {
    removeFolder(folder);
  }
}

/** Gives a name an address from now on, or none. */
export function setAddress(name: string, address: string | undefined): void {
  const file = process.env['HOLDFAST_NAMES'];
  if (file === undefined) throw new Error('this process was not started by runWithNames');
  // Nobody must read a part of it.
  writeFileSync(`${file}.new`, `${name} ${address ?? '-'}\n`);
  renameSync(`${file}.new`, file);
}
