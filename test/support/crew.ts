/** Processes that contend for locks on orders, see `contender.ts`. */

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ConnectOptions } from 'holdfast';
import type { Orders } from './contender.js';
import type { ConnectTarget } from './holdfast.js';
import type { Ledger } from './ledger.js';
import type { Serving } from './orders.js';
import type { RedisServer } from './server.js';
import { until } from './wait.js';

interface Answer {
  readonly id: number;
  readonly begun?: true;
  readonly value?: unknown;
  readonly error?: string;
}

interface Pending {
  begun(): void;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

type Does = (...args: never[]) => unknown;
type Kind<O> = { [K in keyof O]: O[K] extends Does ? K : never }[keyof O] & string;
type Args<O, K extends keyof O> = O[K] extends Does ? Parameters<O[K]> : never;
type Result<O, K extends keyof O> = O[K] extends Does ? Promise<Awaited<ReturnType<O[K]>>> : never;

/** A process on orders: those of `contender.ts`, or of another program. */
export class Contender<O extends Serving = Orders> {
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  #count = 0;

  /** Runs `program`, which serves orders; `who` is its first argument. */
  constructor(
    readonly who: string,
    program: string,
    ...args: readonly string[]
  ) {
    const child = fork(program, [who, ...args], {
      execArgv: ['--enable-source-maps'],
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#child = child;
    running.add(child);
    child.on('message', (answer: Answer) => this.#settle(answer));
    child.once('exit', (code, signal) => {
      running.delete(child);
      const error = new Error(`${who} has ended: ${signal ?? code}`);
      for (const pending of this.#pending.values()) pending.reject(error);
      this.#pending.clear();
    });
  }

  /** Starts a process; `who` names its connections and stands in its tokens. */
  static async start(
    who: string,
    target: ConnectTarget,
    ledger: Ledger,
    { managers = 1, ...options }: ConnectOptions & { managers?: number } = {},
  ): Promise<Contender> {
    const contender = new Contender(who, join(__dirname, 'contender.js'), ledger.url);
    await contender.order('open', target, managers, options);
    return contender;
  }

  /** Sends an order to the process, and answers its answer. */
  order<K extends Kind<O>>(kind: K, ...args: Args<O, K>): Result<O, K> {
    return this.orderBegun(kind, ...args).result;
  }

  /** Like `order`; `begun` resolves when the process has the order. */
  orderBegun<K extends Kind<O>>(
    kind: K,
    ...args: Args<O, K>
  ): { begun: Promise<void>; result: Result<O, K> } {
    const { begun, result } = this.#send(kind, args);
    return { begun, result: result as Result<O, K> };
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Stops the process from running; it does not notice. Ends when none of its threads runs. */
  async pause(): Promise<void> {
    this.#child.kill('SIGSTOP');
    await until(() => isStopped(this.#child.pid ?? 0), `${this.who} to be stopped`);
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  /** Ends the process without warning. */
  async kill(): Promise<void> {
    if (!this.alive) return;
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await gone;
  }

  /** Closes its managers and ends the process. */
  async stop(): Promise<void> {
    if (!this.alive) return;
    this.resume();
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    try {
      assert.equal(await this.#send('close', []).result, 0, 'no operation may be left open');
      this.#child.disconnect();
      await gone;
    } finally {
      await this.kill();
    }
  }

  #send(
    kind: string,
    args: readonly unknown[],
  ): { begun: Promise<void>; result: Promise<unknown> } {
    const id = this.#count++;
    let begun: () => void = () => {};
    const started = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const result = new Promise<unknown>((resolve, reject) => {
      this.#pending.set(id, { begun, resolve, reject });
    });
    // A process that is killed answers no more, which matters only to code that awaits it.
    result.catch(() => {});
    this.#child.send({ id, kind, args }, (error) => {
      if (error !== null) this.#settle({ id, error: String(error) });
    });
    return { begun: started, result };
  }

  #settle({ id, begun, value, error }: Answer): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    if (begun === true) {
      pending.begun();
      return;
    }
    this.#pending.delete(id);
    if (error === undefined) pending.resolve(value);
    else pending.reject(new Error(`${this.who}: ${error}`));
  }
}

/** Whether all threads of a process are stopped: on a busy machine that is a while after the signal. */
function isStopped(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  if (!existsSync(tasks)) {
    return execFileSync('ps', ['-o', 'stat=', '-p', `${pid}`], { encoding: 'utf8' }).startsWith(
      'T',
    );
  }
  const states = readdirSync(tasks).map((task) => readFileSync(join(tasks, task, 'stat'), 'utf8'));
  return states.every((state) => /^\d+ \(.*\) T /.test(state));
}

/** The labels of the waiters in the queue of `lock`, first to last. */
export async function queueOf(server: RedisServer, lock: string): Promise<string[]> {
  const tokens = await server.admin.zrange(`{lock:${lock}}:queue`, 0, '-1');
  return tokens.map(labelOf);
}

/** The label at the end of a token: `hf1.<client>.<n>.<label>`, with a mark while a client waits. */
export function labelOf(token: string): string {
  return /^hf1\.\w+\.\d+(?:\/\d+)*\.(.*?)\+?$/.exec(token)?.[1] ?? token;
}

/** Waits until the waiters with these labels are in the queue of `lock`, in this order. */
export async function untilQueued(server: RedisServer, lock: string, who: string[]): Promise<void> {
  const wanted = who.join();
  await until(async () => (await queueOf(server, lock)).join() === wanted, `the queue ${wanted}`);
}

/** The counter of a server, of the slots of a Cluster, and of one lock of a quorum. */
const COUNTER = /^holdfast:(\{\d+\}:)?fence$/;
const COUNTER_OF_ONE = /^\{.+\}:fence$|^.+::fence$/s;

/** Whether a key is the counter of the fences of all locks, on a server or in a slot of a Cluster. */
export function isCounter(key: string): boolean {
  return COUNTER.test(key);
}

/**
 * Waits until nothing is left but the counters of fences: no lock, no waiter, no subscriber. A waiter that was killed
 * is forgotten after its liveness at the latest.
 */
export async function quiet(
  server: RedisServer,
  limit?: number,
  { quorum = false } = {},
): Promise<void> {
  const counter = quorum ? COUNTER_OF_ONE : COUNTER;
  let left = '';
  try {
    await until(
      async () => {
        const keys = (await server.admin.keys('*')).filter((key) => !counter.test(key));
        // Sentinels keep a channel of their own.
        const channels = await server.admin.pubsub('CHANNELS', 'holdfast:*');
        left = [...keys, ...(channels as string[])].join(' ');
        return left === '';
      },
      'quiet',
      limit,
    );
  } catch {
    assert.fail(`left behind: ${left}`);
  }
}

/**
 * Requests `lock` until its dead waiters are forgotten: one that cannot be reached keeps its
 * position for two seconds, and the next request then removes it. Without a request the keys
 * themselves expire, half a minute after the waiter's last request.
 */
export async function forgetTheDead(
  server: RedisServer,
  lock: string,
  passerBy: Contender,
): Promise<void> {
  await until(async () => {
    const { id } = await passerBy.order('hold', lock);
    await passerBy.order('release', id);
    return (await server.admin.exists(`{lock:${lock}}:queue`)) === 0;
  }, 'the dead to be forgotten');
}

/** Ends the connections of the client that calls itself `name`, and answers how many those were. */
export async function cutOff(server: RedisServer, name: string): Promise<number> {
  const list = String(await server.admin.client('LIST')).split('\n');
  const ids = list
    .filter((line) => line.includes(` name=${name} `))
    .map((line) => /^id=(\d+)/.exec(line)?.[1] ?? '');
  for (const id of ids) await server.admin.call('CLIENT', 'KILL', 'ID', id);
  return ids.length;
}

/** Waits until the client that calls itself `name` listens to its inbox and to notices. */
export async function listens(server: RedisServer, name: string): Promise<void> {
  await until(async () => {
    const list = String(await server.admin.client('LIST')).split('\n');
    return list.some((line) => line.includes(` name=${name} `) && line.includes(' sub=2 '));
  }, `${name} to listen`);
}
