/** The order of the jobs of one key: a sorted set in the Redis of BullMQ, beside the queue's own keys. */

import type { Job, MinimalQueue } from 'bullmq';
import { lockName } from './names.js';
import { type Client, clientOf, lockKeyOf, type QueueOfJob, queueOf } from './queue-of.js';

/** For how long nothing may happen to a key before its order is forgotten: jobs that start later state it again. */
const KEPT_MS = 86_400_000;
/** For how long a job that has left is still known: BullMQ has it among the active jobs until its end is recorded. */
const LEFT_MS = 60_000;
/** How often the first jobs of a key are looked at while others wait behind them, by one of all workers. */
const LOOK_MS = 2_000;
/** The same while none waits: a job that could not leave is all that may be found. */
const LOOK_ALONE_MS = 60_000;
/** How many keys a worker looks at in one step. */
const DUE_MAX = 100;
/** The places of jobs whose ids are no numbers are not below this. */
const NAMED_FROM = 1e12;
/** How many of these are remembered by the order of their start. */
const ARRIVED_MAX = 10_000;
/** The states of jobs that have ended; BullMQ tells `unknown` of one that was removed. */
const FINISHED = ['completed', 'failed', 'unknown'];

/**
 * Puts a job into the order of its key, if it is active under this token: a job whose worker was late, and that another worker
 * has completed meanwhile, would hold up all others. Jobs of one ms come in the order in which BullMQ has started them.
 *
 * KEYS[1]  the order of the key: a sorted set of jobs
 * KEYS[2]  all jobs that are known to be in an order, or to have left it, by when they are forgotten, in ms
 * KEYS[3]  BullMQ's list of active jobs, the latest first
 * KEYS[4]  BullMQ's lock of the job
 * KEYS[5]  the keys that have jobs in their orders, by when the first of these are looked at next, in ms
 * KEYS[6]  the jobs whose place is when they were added, by their number in the order of their start
 * ARGV[1]  the job
 * ARGV[2]  its place: its score in the order, but for a fraction of a ms
 * ARGV[3]  the time, in ms
 * ARGV[4]  how long the order is kept, in ms
 * ARGV[5]  how many jobs run at a time
 * ARGV[6]  the token of the worker; empty if BullMQ has told none
 * ARGV[7]  the key
 * Reply: how many jobs are before this one; those of the first jobs that are not active; the active jobs that are not known;
 *        how many of these were started later than this one; the first that waits, in a list; an empty list if the job is not active under this token
 */
const ENTER = `
local order, known, active, lock, keys, arrived = unpack(KEYS)
local job, place, now, kept, limit, token, key = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local isActive, unknown, idle, later = {}, {}, {}, 0
for _, other in ipairs(redis.call('LRANGE', active, 0, -1)) do
  isActive[other] = true
  if other == job then
    later = #unknown
  elseif (tonumber(redis.call('ZSCORE', known, other) or nil) or 0) <= tonumber(now) then
    unknown[#unknown + 1] = other
  end
end
if not isActive[job] or token ~= '' and redis.call('GET', lock) ~= token then return {} end
if tonumber(place) >= ${NAMED_FROM} then
  local list = redis.call('LRANGE', active, 0, -1)
  for i = #list, 1, -1 do
    if not redis.call('ZSCORE', arrived, list[i]) then
      local last = redis.call('ZRANGE', arrived, -1, -1, 'WITHSCORES')[2] or 0
      redis.call('ZADD', arrived, string.format('%.0f', last + 1), list[i])
    end
  end
  redis.call('ZREMRANGEBYRANK', arrived, 0, -${ARRIVED_MAX} - 1)
  redis.call('PEXPIRE', arrived, kept)
  place = string.format('%.17g', place + redis.call('ZSCORE', arrived, job) % 1024 / 1024)
end
redis.call('ZADD', order, place, job)
redis.call('PEXPIRE', order, kept)
redis.call('ZREMRANGEBYSCORE', known, '-inf', now)
redis.call('ZADD', known, now + kept, job)
redis.call('PEXPIRE', known, kept)
for _, other in ipairs(redis.call('ZRANGE', order, 0, limit - 1)) do
  if not isActive[other] then idle[#idle + 1] = other end
end
local before = redis.call('ZRANK', order, job)
local isWaiting = before >= tonumber(limit)
local look = now + (isWaiting and ${LOOK_MS} or ${LOOK_ALONE_MS})
local planned = redis.call('ZSCORE', keys, key)
if not planned or isWaiting and tonumber(planned) > look then redis.call('ZADD', keys, look, key) end
redis.call('PEXPIRE', keys, kept)
return {before, idle, unknown, later, redis.call('ZRANGE', order, limit, limit)}
`;

/**
 * Chooses the keys whose first jobs are looked at now, by the worker that asks.
 *
 * KEYS[1]  the keys that have jobs, by when the first of these are looked at next, in ms
 * ARGV[1]  the time, in ms
 * ARGV[2]  how many keys at most
 * Reply: how many keys there are; those that are due, in a list
 */
const DUE = `
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, key in ipairs(due) do redis.call('ZADD', KEYS[1], ARGV[1] + ${LOOK_MS}, key) end
return {redis.call('ZCARD', KEYS[1]), due}
`;

/**
 * Looks at the first jobs of a key, and forgets a key that has none.
 *
 * KEYS[1]  the order of the key
 * KEYS[2]  BullMQ's list of active jobs
 * KEYS[3]  the keys that have jobs, by when the first of these are looked at next, in ms
 * ARGV[1]  the key
 * ARGV[2]  how many jobs run at a time
 * ARGV[3]  the time, in ms
 * Reply: those of the first jobs that are not active, in a list
 */
const HEAD = `
local order, active, keys = unpack(KEYS)
local key, limit, now = unpack(ARGV)
local isActive, idle = {}, {}
for _, job in ipairs(redis.call('LRANGE', active, 0, -1)) do isActive[job] = true end
for _, job in ipairs(redis.call('ZRANGE', order, 0, limit - 1)) do
  if not isActive[job] then idle[#idle + 1] = job end
end
local jobs = redis.call('ZCARD', order)
if jobs == 0 then
  redis.call('ZREM', keys, key)
elseif jobs <= tonumber(limit) and #idle == 0 then
  redis.call('ZADD', keys, now + ${LOOK_ALONE_MS}, key)
end
return idle
`;

/**
 * Takes a job out of the order of its key. In one step with that it tells whose turn it is now: two jobs that leave at a time
 * have two successors.
 *
 * KEYS[1]  the order of the key
 * KEYS[2]  all jobs that are known
 * KEYS[3]  the keys that have jobs
 * ARGV[1]  the job
 * ARGV[2]  how many jobs run at a time
 * ARGV[3]  until when the job is still known, in ms
 * ARGV[4]  how long the known jobs are kept, in ms
 * ARGV[5]  the key
 * Reply: the job that is among the first by this, in a list; an empty list if there is none
 */
const LEAVE = `
local order, known, keys = unpack(KEYS)
local job, limit, forgotten, kept, key = unpack(ARGV)
redis.call('ZADD', known, forgotten, job)
redis.call('PEXPIRE', known, kept)
if redis.call('ZREM', order, job) == 0 then return {} end
if redis.call('EXISTS', order) == 0 then redis.call('ZREM', keys, key) end
return redis.call('ZRANGE', order, limit - 1, limit - 1)
`;

type Command = (...args: unknown[]) => Promise<unknown>;

const COMMANDS = {
  holdfastDue: [DUE, 1],
  holdfastEnter: [ENTER, 6],
  holdfastHead: [HEAD, 3],
  holdfastLeave: [LEAVE, 3],
} as const;
/** The orders of each worker. */
const known = new WeakMap<MinimalQueue, Orders>();

/** Where a job stands in the order of its key. @internal */
export interface Standing {
  /** How many jobs are before it. */
  readonly before: number;
  /** The first jobs that are not active: they wait to be started, are delayed, or have ended. */
  readonly idle: readonly string[];
  /** The active jobs that are in no order yet, the latest first. */
  readonly unknown: readonly string[];
  /** How many of these were started later than this one. */
  readonly later: number;
  /** The first job of the key that waits, if any. */
  readonly next: string | undefined;
}

/** The orders of one queue, as one of its workers reaches them. @internal */
export class Orders {
  readonly #queue: QueueOfJob;
  readonly #client: Client;
  readonly #kind: typeof Job;

  private constructor(job: Job, client: Client) {
    this.#queue = queueOf(job);
    this.#client = client;
    this.#kind = job.constructor as typeof Job;
  }

  static async of(job: Job): Promise<Orders> {
    const queue = queueOf(job);
    const before = known.get(queue);
    if (before !== undefined) return before;
    const client = await clientOf(queue);
    if (client === undefined) throw new TypeError('oneAtATime needs a queue of BullMQ in Redis');
    for (const [name, [lua, numberOfKeys]] of Object.entries(COMMANDS)) {
      client.defineCommand(name, { lua, numberOfKeys });
    }
    const orders = new Orders(job, client);
    known.set(queue, orders);
    return orders;
  }

  /** The beginning of the queue's keys, which no other queue has. */
  get name(): string {
    return this.#key('');
  }

  /** The name of the lock of a key's jobs. */
  lockOf(key: string): string {
    return lockName(this.#queue.name, key);
  }

  /** Whether the worker is being closed. */
  get isClosing(): boolean {
    return this.#queue.closing !== undefined;
  }

  /** Puts a job into the order of its key; undefined if it is not active under this token any more. */
  async enter(
    key: string,
    job: Job,
    token: string | undefined,
    limit: number,
  ): Promise<Standing | undefined> {
    const id = job.id ?? '';
    const keys = [this.#order(key), this.#known, this.#active, lockKeyOf(this.#queue, job)];
    const args = [id, placeOf(job), Date.now(), KEPT_MS, limit, token ?? '', key];
    const reply = await this.#run('holdfastEnter', [...keys, this.#keys, this.#arrived, ...args]);
    const [before, idle, unknown, later, [next] = []] = reply as [
      number,
      string[],
      string[],
      number,
      string[],
    ];
    if (before === undefined) return undefined;
    return { before: Number(before), idle, unknown, later: Number(later), next };
  }

  /** Whether a job is among the first of its key. */
  async isFirst(key: string, id: string, limit: number): Promise<boolean> {
    return (await this.#client.zrange(this.#order(key), 0, limit - 1)).includes(id);
  }

  /** Takes a job out of the order of its key, and wakes the one whose turn it is by that. */
  async leave(key: string, id: string, limit: number): Promise<void> {
    const keys = [this.#order(key), this.#known, this.#keys];
    const args = [id, limit, Date.now() + LEFT_MS, KEPT_MS, key];
    const [next] = (await this.#run('holdfastLeave', [...keys, ...args])) as string[];
    if (next !== undefined) await this.wake(next);
  }

  /**
   * Removes those of some jobs that have ended and could not leave: the jobs of a process that was killed, and jobs that were
   * removed, or failed by BullMQ itself. Answers whether there was any.
   */
  async removeFinished(key: string, ids: readonly string[], limit: number): Promise<boolean> {
    const states = await this.#statesOf(ids);
    const finished = ids.filter((_, i) => FINISHED.includes(states[i] ?? 'unknown'));
    await Promise.all(finished.map((id) => this.leave(key, id, limit)));
    return finished.length > 0;
  }

  /** The delayed ones of some jobs. */
  async delayedOf(ids: readonly string[]): Promise<readonly string[]> {
    const states = await this.#statesOf(ids);
    return ids.filter((_, i) => states[i] === 'delayed');
  }

  /** The keys whose first jobs are to be looked at now, by this worker alone, and whether any key has jobs. */
  async due(): Promise<{ readonly keys: readonly string[]; readonly any: boolean }> {
    const args = [this.#keys, Date.now(), DUE_MAX];
    const [count, keys] = (await this.#run('holdfastDue', args)) as [number, string[]];
    return { keys, any: Number(count) > 0 };
  }

  /** The first jobs of a key that are not active. */
  async idleOf(key: string, limit: number): Promise<readonly string[]> {
    const keys = [this.#order(key), this.#active, this.#keys];
    return (await this.#run('holdfastHead', [...keys, key, limit, Date.now()])) as string[];
  }

  /** The job of an id, if there still is one. */
  find(id: string): Promise<Job | undefined> {
    const { fromId } = this.#kind;
    return fromId.call(this.#kind, this.#queue, id) as Promise<Job | undefined>;
  }

  /** Has a job that sleeps look again within `ms`. */
  async hasten(id: string, ms: number): Promise<void> {
    const job = await this.find(id);
    if ((job?.delay ?? 0) > ms) await job?.changeDelay(ms).catch(() => {});
  }

  /** Has a job start again now. */
  async wake(id: string): Promise<void> {
    const job = await this.find(id);
    // It is not delayed if it runs, waits to be started, or was woken by another process.
    await job?.promote().catch(() => {});
  }

  #statesOf(ids: readonly string[]): Promise<(string | undefined)[]> {
    return Promise.all(ids.map(async (id) => (await this.find(id))?.getState()));
  }

  #run(name: keyof typeof COMMANDS, args: unknown[]): Promise<unknown> {
    const client = this.#client;
    if (client.runCommand !== undefined) return client.runCommand(name, args);
    return (client as unknown as Record<string, Command>)[name]?.(...args) as Promise<unknown>;
  }

  #key(end: string): string {
    return this.#queue.toKey(end);
  }

  #order(key: string): string {
    return this.#key(`holdfast:order:${key}`);
  }

  get #known(): string {
    return this.#key('holdfast:known');
  }

  get #keys(): string {
    return this.#key('holdfast:keys');
  }

  get #arrived(): string {
    return this.#key('holdfast:arrived');
  }

  get #active(): string {
    return this.#key('active');
  }
}

/**
 * A job's place in the order: its number, or if its id is none, when it was added, which follows all numbers.
 *
 * @internal
 */
export function placeOf({ id, timestamp }: Job): number {
  return /^\d{1,12}$/.test(id ?? '') ? Number(id) : timestamp;
}
