/** A job's queue. Its property is protected in BullMQ, and its parts differ between the versions. */

import type { Job, MinimalQueue } from 'bullmq';
import { show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';

/** The part of BullMQ's client that is used here: the client of version 6, or ioredis, whose commands are methods. @internal */
export interface Client {
  defineCommand(name: string, definition: { numberOfKeys: number; lua: string }): void;
  runCommand?(name: string, args: unknown[]): Promise<unknown>;
  get(key: string): Promise<string | null | undefined>;
  zrange(key: string, start: number, end: number): Promise<string[]>;
}

/** The queue of a job: the worker that has started it. @internal */
export type QueueOfJob = MinimalQueue & {
  readonly opts: { readonly lockDuration?: number };
  readonly closing?: Promise<void> | undefined;
  readonly client?: Promise<Client>;
  readonly backend?: { readonly client?: Promise<Client> };
};

/** The queue of a job, which is checked to be one. @internal */
export function queueOf(job: Job): QueueOfJob {
  const { queue } = ((job as Job | null | undefined) ?? {}) as { readonly queue?: QueueOfJob };
  if (typeof queue?.toKey === 'function') return queue;
  const message = `the processor needs a job that a Worker of BullMQ has started, got ${show(job)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** BullMQ's client; undefined if the queue is not in Redis. @internal */
export async function clientOf(queue: QueueOfJob): Promise<Client | undefined> {
  return queue.backend?.client ?? queue.client;
}

/** The key of BullMQ's lock of a job. @internal */
export function lockKeyOf(queue: QueueOfJob, job: Job): string {
  return queue.toKey(`${job.id ?? ''}:lock`);
}

/** The error of a job that is another worker's by now, or has ended. @internal */
export function notActive({ id }: Job): Error {
  return new Error(
    `job ${id} is not active under this worker's token any more: BullMQ took it for stalled`,
  );
}
