/** The order of the jobs of one key: a sorted set in the Redis of BullMQ, beside the queue's own keys. */

import type { Job, MinimalQueue } from 'bullmq';

/** For how long nothing may happen to a key before its order is forgotten: jobs that start later state it again. */
const KEPT_MS = 86_400_000;
/** For how long a job that has left is still known: BullMQ has it among the active jobs until its end is recorded. */
const LEFT_MS = 60_000;

/**
 * Puts a job into the order of its key.
 *
 * KEYS[1]  the order of the key: a sorted set of jobs
 * KEYS[2]  all jobs that are known to be in an order, or to have left it, by when they are forgotten, in ms
 * KEYS[3]  BullMQ's list of active jobs
 * ARGV[1]  the job
 * ARGV[2]  its place: its score in the order
 * ARGV[3]  the time, in ms
 * ARGV[4]  how long the order is kept, in ms
 * ARGV[5]  how many jobs run at a time
 * Reply: how many jobs are before this one; those of the first jobs that are not active; the active jobs that are not known
 */
const ENTER = `
local order, known, active = KEYS[1], KEYS[2], KEYS[3]
local job, place, now, kept, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
redis.call('ZADD', order, place, job)
redis.call('PEXPIRE', order, kept)
redis.call('ZREMRANGEBYSCORE', known, '-inf', now)
redis.call('ZADD', known, now + kept, job)
redis.call('PEXPIRE', known, kept)
local isActive, unknown, idle = {}, {}, {}
for _, other in ipairs(redis.call('LRANGE', active, 0, -1)) do
  isActive[other] = true
  if not redis.call('ZSCORE', known, other) then unknown[#unknown + 1] = other end
end
for _, other in ipairs(redis.call('ZRANGE', order, 0, limit - 1)) do
  if not isActive[other] then idle[#idle + 1] = other end
end
return {redis.call('ZRANK', order, job), idle, unknown}
`;

/**
 * Takes a job out of the order of its key. In one step with that it tells whose turn it is now: two jobs that leave at a time
 * have two successors.
 *
 * KEYS[1]  the order of the key
 * KEYS[2]  all jobs that are known
 * ARGV[1]  the job
 * ARGV[2]  how many jobs run at a time
 * ARGV[3]  until when the job is still known, in ms
 * ARGV[4]  how long the known jobs are kept, in ms
 * Reply: the job that is among the first by this, in a list; an empty list if there is none
 */
const LEAVE = `
local order, known = KEYS[1], KEYS[2]
local job, limit, forgotten, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
redis.call('ZADD', known, forgotten, job)
redis.call('PEXPIRE', known, kept)
if redis.call('ZREM', order, job) == 0 then return {} end
return redis.call('ZRANGE', order, limit - 1, limit - 1)
`;

/** The part of BullMQ's client that a turn uses: the client of version 6, or ioredis, whose commands are methods. */
interface Client {
  defineCommand(name: string, definition: { numberOfKeys: number; lua: string }): void;
  runCommand?(name: string, args: unknown[]): Promise<unknown>;
  zrange(key: string, start: number, end: number): Promise<string[]>;
}

type Command = (...args: unknown[]) => Promise<unknown>;

/** The queue of a job. The property is protected, and its parts differ between the versions of BullMQ. */
interface Behind {
  readonly queue: MinimalQueue & {
    readonly client?: Promise<Client>;
    readonly backend?: { readonly client?: Promise<Client> };
  };
}

const COMMANDS = { holdfastEnter: [ENTER, 3], holdfastLeave: [LEAVE, 2] } as const;
const prepared = new WeakSet<Client>();

/** Where a job stands in the order of its key. @internal */
export interface Standing {
  /** How many jobs are before it. */
  readonly before: number;
  /** Those of the first jobs that are not active: they wait to be started, are delayed, or have ended. */
  readonly idle: readonly string[];
  /** The active jobs that are in no order yet. */
  readonly unknown: readonly string[];
}

/** The turn of one job among those of its key. @internal */
export class Turn {
  readonly #job: Job;
  readonly #queue: Behind['queue'];
  readonly #client: Client;
  readonly #order: string;
  readonly #known: string;
  readonly #limit: number;

  private constructor(job: Job, client: Client, key: string, limit: number) {
    this.#job = job;
    this.#queue = queueOf(job);
    this.#client = client;
    this.#order = this.#queue.toKey(`holdfast:order:${key}`);
    this.#known = this.#queue.toKey('holdfast:known');
    this.#limit = limit;
  }

  static async of(job: Job, key: string, limit: number): Promise<Turn> {
    const queue = queueOf(job);
    const client = await (queue.backend?.client ?? queue.client);
    if (client === undefined) throw new TypeError('oneAtATime needs a queue of BullMQ in Redis');
    if (!prepared.has(client)) {
      for (const [name, [lua, numberOfKeys]] of Object.entries(COMMANDS)) {
        client.defineCommand(name, { lua, numberOfKeys });
      }
      prepared.add(client);
    }
    return new Turn(job, client, key, limit);
  }

  /** Puts the job into the order. */
  async enter(): Promise<Standing> {
    const keys = [this.#order, this.#known, this.#queue.toKey('active')];
    const args = [this.#id, placeOf(this.#job), Date.now(), KEPT_MS, this.#limit];
    const reply = await this.#run('holdfastEnter', [...keys, ...args]);
    const [before, idle, unknown] = reply as [number, string[], string[]];
    return { before: Number(before), idle, unknown };
  }

  /** Whether the job is among the first of its key. */
  async isFirst(): Promise<boolean> {
    return (await this.#client.zrange(this.#order, 0, this.#limit - 1)).includes(this.#id);
  }

  /** Takes this job or another out of the order, and wakes the one whose turn it is by that. */
  async leave(id = this.#id): Promise<void> {
    const times = [Date.now() + LEFT_MS, KEPT_MS];
    const args = [this.#order, this.#known, id, this.#limit, ...times];
    const [next] = (await this.#run('holdfastLeave', args)) as string[];
    if (next !== undefined) await this.#wake(next);
  }

  /** Has the job start again now. */
  wake(): Promise<void> {
    return this.#wake(this.#id);
  }

  /** The job of an id, if there still is one. */
  find(id: string): Promise<Job | undefined> {
    const { fromId } = this.#job.constructor as typeof Job;
    return fromId.call(this.#job.constructor, this.#queue, id) as Promise<Job | undefined>;
  }

  async #wake(id: string): Promise<void> {
    const job = await this.find(id);
    // It is not delayed if it runs, waits to be started, or was woken by another process.
    await job?.promote().catch(() => {});
  }

  #run(name: keyof typeof COMMANDS, args: unknown[]): Promise<unknown> {
    const client = this.#client;
    if (client.runCommand !== undefined) return client.runCommand(name, args);
    return (client as unknown as Record<string, Command>)[name]?.(...args) as Promise<unknown>;
  }

  get #id(): string {
    return this.#job.id ?? '';
  }
}

/** A job's place in the order: its number, or if its id is none, when it was added, which follows all numbers. @internal */
export function placeOf({ id, timestamp }: Job): number {
  return /^\d{1,12}$/.test(id ?? '') ? Number(id) : timestamp;
}

function queueOf(job: Job): Behind['queue'] {
  return (job as unknown as Behind).queue;
}
