/** One adapter in one weather: what it may use, and what is judged alike for all. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ConnectOptions } from 'holdfast';
import { Redis } from 'ioredis';
import { closeManagers, connect, type LockManager } from '../support/holdfast.js';
import type { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

/** How long a manager of a scene waits for an answer, in ms. */
export const COMMAND_MS = 1_000;

/** Where a scene is. */
export interface Place {
  readonly url: string;
  /** A word that no other scene uses. */
  readonly name: string;
  /** Of the weather `options`. */
  readonly options: ConnectOptions;
}

const UNHANDLED = ['unhandledRejection', 'uncaughtException'] as const;

/** What was seen of the process while a scene ran. */
class Witness {
  readonly #seen: string[] = [];
  /** The errors of the process that the scene has made itself, and how often each came. */
  readonly #own = new Map<RegExp, number>();
  readonly #note = (error: unknown, how: unknown) => {
    // Node tells where an uncaught error comes from, and of a rejection its promise.
    const kind = typeof how === 'string' ? 'uncaught error' : 'unhandled rejection';
    const text = `${kind}: ${error}`;
    const own = [...this.#own.keys()].find((each) => kind === 'uncaught error' && each.test(text));
    if (own === undefined) this.#seen.push(text);
    else this.#own.set(own, (this.#own.get(own) ?? 0) + 1);
  };
  readonly #warn = (warning: Error) => {
    if (warning.name === 'MaxListenersExceededWarning') this.#seen.push(warning.message);
  };
  /** Those of the runner, which would fail the test for an error that it expects. */
  readonly #listeners = UNHANDLED.map((event) => process.rawListeners(event));

  constructor() {
    for (const event of UNHANDLED) process.removeAllListeners(event).on(event, this.#note);
    process.on('warning', this.#warn);
  }

  expect(error: RegExp): void {
    this.#own.set(error, 0);
  }

  /** What must not have happened, or should have. */
  async end(): Promise<readonly string[]> {
    // Rejections and warnings come in turns of their own.
    for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setImmediate(resolve));
    UNHANDLED.forEach((event, i) => {
      process.removeAllListeners(event);
      for (const each of this.#listeners[i] ?? []) process.on(event, each as never);
    });
    process.off('warning', this.#warn);
    const missing = [...this.#own].filter(([, count]) => count === 0);
    return [...this.#seen, ...missing.map(([error]) => `no uncaught error ${error}`)];
  }
}

export class Scene implements Place {
  readonly url: string;
  readonly name: string;
  readonly options: ConnectOptions;
  readonly #ends: (() => unknown)[] = [];
  readonly #witness: Witness | undefined;
  readonly #managers = new Map<LockManager, string>();

  constructor({ url, name, options }: Place, witness?: Witness) {
    this.#witness = witness;
    this.url = url;
    this.name = name;
    this.options = options;
  }

  /** A manager, with the options of the weather. It is judged, and closed, at the end. */
  async connect(options: ConnectOptions = {}): Promise<LockManager> {
    const given = { commandTimeout: COMMAND_MS, ...this.options, ...options };
    const manager = await connect(this.url, given);
    this.#managers.set(manager, listenersOf(manager));
    return manager;
  }

  /** A client of ioredis, as services have them. */
  client(): Redis {
    const client = new Redis(this.url, { commandTimeout: COMMAND_MS });
    client.on('error', () => {});
    this.after(() => client.disconnect());
    return client;
  }

  /** Calls `end` when the weather is over, the last first. */
  after(end: () => unknown): void {
    this.#ends.unshift(end);
  }

  /** Says that the process gets this uncaught error: that of a listener which the scene has made. */
  expectUncaught(error: RegExp): void {
    this.#witness?.expect(error);
  }

  /** Ends what was opened, and tells which listeners of managers were left. */
  async end(): Promise<readonly string[]> {
    for (const end of this.#ends.splice(0)) await end();
    const left = [...this.#managers].flatMap(([manager, before]) => {
      const now = listenersOf(manager);
      return now === before ? [] : [`listeners are left: ${now}; there were: ${before}`];
    });
    return left;
  }

  /** What the managers hold, unless that is left to expire, or wait for. */
  busy(leaves: boolean): readonly string[] {
    return [...this.#managers.keys()].flatMap((manager) => {
      const { waiting, ...stats } = manager.stats();
      const held = leaves ? 0 : stats.held;
      return held + waiting === 0 ? [] : [`a manager holds ${held} locks, and ${waiting} wait`];
    });
  }
}

function listenersOf(manager: LockManager): string {
  return manager
    .eventNames()
    .map((event) => `${String(event)} ${manager.listenerCount(event as never)}`)
    .sort()
    .join(', ');
}

/** A server that refuses what writes, as one without memory does, or that stands still. */
export class Weathered {
  readonly server: RedisServer;

  constructor(server: RedisServer) {
    this.server = server;
  }

  async refuse(): Promise<void> {
    await this.server.admin.config('SET', 'maxmemory', '1');
  }

  async takeAgain(): Promise<void> {
    await this.server.admin.config('SET', 'maxmemory', '0');
  }

  /** The locks that are held, by their names. */
  async held(): Promise<readonly string[]> {
    // The drop-ins have keys without a prefix.
    const manager = await connect(this.server.url, { prefix: '' });
    const { held } = await manager.query();
    await manager.close();
    return held.filter(({ state }) => state !== 'done').map(({ name }) => name);
  }
}

/** Runs `run` in a scene of its own, and judges what every scene must leave behind: nothing. */
export async function judged(
  weathered: Weathered,
  { options = {}, leaves }: { options?: ConnectOptions; leaves?: RegExp | undefined },
  run: (scene: Scene) => Promise<void>,
): Promise<void> {
  const { server } = weathered;
  const witness = new Witness();
  const place = { url: server.url, name: `s${randomUUID().slice(0, 8)}`, options };
  const scene = new Scene(place, witness);
  const wrong: string[] = [];
  try {
    await run(scene);
    const busy = () => scene.busy(leaves !== undefined);
    await until(() => busy().length === 0, 'the managers to hold nothing').catch(() => {
      wrong.push(...busy());
    });
    const left = async () => (await weathered.held()).filter((name) => !leaves?.test(name));
    await until(async () => (await left()).length === 0, 'the locks to be free').catch(async () => {
      wrong.push(`locks are left: ${await left()}`);
    });
  } finally {
    server.resume();
    await weathered.takeAgain();
    wrong.push(...(await scene.end()));
    await closeManagers();
    await server.admin.flushall();
    wrong.push(...(await witness.end()));
  }
  assert.deepEqual(wrong, []);
}
