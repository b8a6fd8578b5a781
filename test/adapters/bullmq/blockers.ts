/** Starts workers whose jobs block their event loops, and reads what they have done. */

import { join } from 'node:path';
import type { WorkerOptions } from 'bullmq';
import { ROOT } from '../../support/child.js';
import { type Program, spawnProgram } from '../../support/program.js';
import type { RedisServer } from '../../support/server.js';

export interface BlockerOptions
  extends Pick<
    WorkerOptions,
    | 'concurrency'
    | 'lockDuration'
    | 'maxStalledCount'
    | 'prefix'
    | 'skipLockRenewal'
    | 'stalledInterval'
  > {
  readonly name: string;
  /** How long each job blocks. */
  readonly blockMs: number;
  /** That of BullMQ: the oldest, and the newest of each number. */
  readonly version?: '5.10' | '5' | '6';
  readonly isKept?: boolean;
  /** Whether one job of a key runs at a time. */
  readonly keyed?: boolean;
  readonly stallTimeout?: number;
}

export interface Line {
  readonly what: string;
  readonly id: string;
  readonly at: number;
  readonly pid: number;
}

/** Starts a worker, and waits until it asks for jobs. */
export async function startBlocker(server: RedisServer, options: BlockerOptions): Promise<Program> {
  const file = join(ROOT, 'build', 'test', 'adapters', 'bullmq', 'blocker.js');
  const program = spawnProgram(file, server.url, JSON.stringify(options));
  await program.said('ready');
  return program;
}

export async function journalOf(server: RedisServer): Promise<Line[]> {
  return (await server.admin.lrange('journal', 0, -1)).map((line) => {
    const [what = '', id = '', at, pid] = line.split(' ');
    return { what, id, at: Number(at), pid: Number(pid) };
  });
}
