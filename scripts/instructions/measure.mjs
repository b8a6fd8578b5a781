// Measures in processes of their own, on a server of their own.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startOwnServer } from '../../bench/server.mjs';
import { countsOf } from './profile.mjs';

const WORKER = join(import.meta.dirname, 'worker.mjs');
const FOOTPRINT = join(import.meta.dirname, 'footprint.mjs');
/** The young generation of the heap is kept small: its changes of size do not belong to the memory of a lock. */
const SMALL_HEAP = ['--expose-gc', '--min-semi-space-size=1', '--max-semi-space-size=1'];

/**
 * V8 compiles and collects on the thread that runs: what another one does meanwhile differs from run to run, by two percent
 * of a lock.
 */
const PREDICTABLE = '--predictable';

/** Counts the instructions of a scenario, per unit. With `misses`, which takes half as long again, also those of the caches. */
export async function countInstructions(scenario, units, { misses = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-instructions-'));
  const profile = join(folder, 'profile');
  const valgrind = [
    '--tool=callgrind',
    '--instr-atstart=no',
    `--cache-sim=${misses ? 'yes' : 'no'}`,
    '--smc-check=all-non-file',
    `--callgrind-out-file=${profile}`,
  ];
  try {
    const counted = await onServer((url) =>
      run('valgrind', [
        ...[...valgrind, process.execPath, PREDICTABLE],
        ...[WORKER, scenario, url, String(units)],
      ]),
    );
    return countsOf(readFileSync(profile, 'utf8'), Number(counted));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The bytes that a manager, a held lock and a waiter take. */
export async function measureMemory() {
  return JSON.parse(
    await onServer((url) => run(process.execPath, [...SMALL_HEAP, FOOTPRINT, url])),
  );
}

async function onServer(use) {
  const server = await startOwnServer();
  try {
    return use(server.url);
  } finally {
    await server.stop();
  }
}

function run(program, args) {
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
