/**
 * Breaks a feature off between each two of its steps. A calm run tells the requests of its first caller. Then the
 * same is run for each request and each fault of `faults.ts`, with a second caller, and the feature's promises
 * are judged from what both saw, from the effects, and from what the store has.
 */

import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { sleep } from '../support/wait.js';
import { Wire } from '../support/wire.js';
import { POSTGRES, resp } from '../support/wire-protocols.js';
import { FAULTS, type Fault, type Running } from './faults.js';
import {
  type Feature,
  type Outcome,
  outcomeOf,
  type Place,
  type Seen,
  sceneOf,
  WARM_UP,
} from './feature.js';
import { featuresOf } from './lists.js';
import { Operations } from './operations.js';

/** No lock that is left behind ends by itself within a test. */
const LONG_MS = 60_000;
/** The lease of a process that is stopped or killed. */
const SHORT_MS = 600;
/** A call that takes longer than this never ends. */
const PATIENCE_MS = 15_000;
/** Within this time the last of the requests that undo something comes: the second release comes after a second. */
const UNDONE_MS = 1_500;
/** How many cases run at a time; most of them wait. */
const AT_ONCE = 16;
const PROCESSES_AT_ONCE = 3;

/** Each case has a database of its own, with its own fence counter. */
const DATABASES = 4_000;

/** How long the process may go on after its tests, in ms. */
const END_MS = 10_000;

let redis: RedisServer;
let folder: string;
const servers: Record<string, string> = {};
let cases = 0;

/** Declares a test for each feature of a list; `more` starts servers besides Redis, by the names of their URLs. */
export function breakEveryStep(
  list: string,
  more: Readonly<Record<string, () => Promise<{ url: string; stop(): Promise<unknown> }>>> = {},
): void {
  const started: { stop(): Promise<unknown> }[] = [];
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-steps-'));
    redis = await RedisServer.start({ args: ['--databases', `${DATABASES}`] });
    servers['redis'] = redis.url;
    for (const [name, start] of Object.entries(more)) {
      const server = await start();
      started.push(server);
      servers[name] = server.url;
    }
  });
  after(async () => {
    await Promise.all(started.map((server) => server.stop()));
    await redis?.stop();
    removeFolder(folder);
    endSoon();
  });
  for (const feature of featuresOf(list)) {
    test(feature.name, async (t) => {
      const { steps, seen } = await breakAll(list, feature);
      const broken = seen.flatMap((each) => contradictions(feature, each));
      const kept = seen.length - new Set(broken.map(({ of }) => of)).size;
      t.diagnostic(`steps: ${feature.name}: ${steps}, ${seen.length} tried, ${kept} kept`);
      assert.equal(
        broken.length,
        0,
        `${feature.page}\n${broken.map(({ text }) => text).join('\n')}`,
      );
    });
  }
}

/** Ends this process, and tells what keeps it: a case that was broken off, and then tried again, may leave a client. */
function endSoon(): void {
  setTimeout(() => {
    console.error(`still open after all lists: ${process.getActiveResourcesInfo().join(', ')}`);
    process.exit();
  }, END_MS).unref();
}

interface Case {
  readonly list: string;
  readonly feature: Feature;
  readonly fault: Fault | undefined;
  readonly step: number;
}

/** What was seen, and the request that met its fate. */
interface Tried extends Seen {
  readonly request: string;
}

async function breakAll(list: string, feature: Feature) {
  const calm = await calmRun(list, feature);
  const { requests } = calm;
  const faults = FAULTS.filter((fault) => isTried(feature, fault));
  const all = requests.flatMap((_, at) =>
    faults.map((fault) => ({ list, feature, fault, step: at + 1 })),
  );
  const [apart, here] = [true, false].map((isApart) =>
    all.filter(({ fault }) => (fault.process !== undefined) === isApart),
  ) as [Case[], Case[]];
  const seen = await allEnded([
    inTurns(here, feature.ownProcess === true ? 2 * PROCESSES_AT_ONCE : AT_ONCE, tryCase),
    inTurns(apart, PROCESSES_AT_ONCE, tryCase),
  ]);
  const memory = feature.memory === true ? await breakInMemory(feature) : { count: 0, seen: [] };
  const closes = FAULTS.filter((fault) => fault.closes).length;
  const steps = [
    `${requests.length} steps x ${faults.length} faults`,
    ...(memory.count > 0 ? [`${memory.count} x ${closes} in memory:`] : []),
  ].join(' + ');
  return { steps, seen: [calm, ...seen.flat(), ...memory.seen] };
}

function isTried({ faults, oneProcess }: Feature, { name, process }: Fault): boolean {
  if (faults !== undefined) return faults.includes(name);
  return !(process && oneProcess);
}

/** A run without a fault. The first ones bring scripts to the server, so the steps are those of two alike. */
async function calmRun(list: string, feature: Feature) {
  const run = () => tryOnce({ list, feature, fault: undefined, step: 0 });
  let last = await run();
  for (let times = 1; times < 5; times += 1) {
    const next = await run();
    if (next.requests.length === last.requests.length) return next;
    last = next;
  }
  throw new Error(`${feature.name}: no two calm runs have the same requests`);
}

/** Runs the cases, so many at a time. */
async function inTurns<T>(
  cases: readonly Case[],
  atOnce: number,
  run: (each: Case) => Promise<T>,
): Promise<T[]> {
  const results: T[] = [];
  const queue = [...cases.entries()];
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      results[next[0]] = await run(next[1]);
    }
  };
  await allEnded(Array.from({ length: atOnce }, worker));
  return results;
}

/** Waits for all of them, also if one fails: after its test nothing must go on, without a server. */
async function allEnded<T>(running: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(running);
  return Promise.all(running);
}

/** Tries a case. On a machine that is short of CPU a connection may break by itself, ahead of the fault. */
async function tryCase(it: Case): Promise<Tried> {
  for (let times = 1; ; times += 1) {
    const tried = await tryOnce(it).catch((error: unknown) => {
      if (times === 3) throw error;
    });
    if (tried?.met) return tried;
    const { feature, fault, step } = it;
    if (times === 3) throw new Error(`${feature.name}, ${fault?.name}: request ${step} never came`);
  }
}

async function tryOnce(it: Case) {
  const { feature, fault } = it;
  const ttl = isShort(feature, fault) ? SHORT_MS : LONG_MS;
  const through = new URL(servers[feature.through ?? 'redis'] ?? '');
  const place = placeOf({ url: through.href, ttl });
  const protocol = through.protocol === 'redis:' ? resp(place.name, WARM_UP) : POSTGRES;
  const wire = await Wire.start(Number(through.port), protocol);
  try {
    return await tryBehind(wire, it, place);
  } finally {
    await wire.stop();
  }
}

async function tryBehind(wire: Wire, it: Case, place: Place) {
  const { feature, fault, step } = it;
  const before = new URL(place.url);
  before.port = `${wire.port}`;
  const prepared = await feature.prepare?.(sceneOf(place));
  const given = { ...place, given: prepared?.given };
  const caller = begin(it, { ...given, url: before.href, who: 'first' });
  try {
    if (fault !== undefined) wire.at(step, fault.fate(caller));
    const ended = await caller.opened;
    const second = () => callSecond(feature, { ...given, who: 'second' }, prepared);
    const seen = await inOrder(fault, { wire, caller, ended, second });
    // What became of a request is not known: the first caller may still undo it.
    if (seen.first.error !== undefined || fault?.away) await wire.untilQuiet(UNDONE_MS);
    await caller.end();
    const again = await callSecond(feature, { ...given, who: 'again' }, prepared);
    const request = seen.requests[step - 1] ?? '';
    return {
      ...{ fault: fault?.name ?? 'none', step, request, met: wire.met },
      ...{ ...seen, again, prepared },
      effects: effectsOf(place),
      store: await storeOf(place),
    };
  } catch (error) {
    const { message } = error as Error;
    throw new Error(`${feature.name}, ${fault?.name ?? 'calm'}, step ${step}: ${message}`, {
      cause: error,
    });
  } finally {
    await caller.end().finally(() => prepared?.close?.());
  }
}

/** Whether the locks of the first caller must end by themselves. */
function isShort({ leavesLocks = [] }: Feature, fault: Fault | undefined): boolean {
  if (fault === undefined) return false;
  return fault.process !== undefined || leavesLocks.some((kind) => fault[kind] === true);
}

function placeOf({ url, ttl }: { url: string; ttl: number }): Place {
  cases += 1;
  const name = `case-${cases}.`;
  const ledger = join(folder, `${cases}`);
  writeFileSync(ledger, '');
  const redisUrl = `${redis.url}/${cases % DATABASES}`;
  const own = { ...servers, redis: redisUrl };
  const target = url.startsWith('redis:') ? redisUrl : url;
  const common = { wait: PATIENCE_MS / 2, who: '', given: undefined };
  return { ...common, url: target, name, ttl, ledger, servers: own };
}

function effectsOf({ ledger }: Place): string[] {
  return readFileSync(ledger, 'utf8').split('\n').filter(Boolean);
}

/** Everything that is in the database of a case. */
async function storeOf({ servers }: Place): Promise<Record<string, string>> {
  const db = Number(new URL(servers['redis'] ?? '').pathname.slice(1));
  const client = redis.client({ db });
  const store: Record<string, string> = {};
  try {
    for (const key of await client.keys('*')) {
      const type = await client.type(key);
      if (type !== 'none') store[key] = type === 'string' ? `${await client.get(key)}` : type;
    }
  } finally {
    client.disconnect();
  }
  delete store['holdfast:fence'];
  return store;
}

/** The first caller, and what a fault can do to it. */
interface Caller extends Running {
  /** Resolves when it is ready, with its outcome to come. */
  readonly opened: Promise<{ outcome: Promise<Outcome> }>;
  /** Closes what it opened. */
  end(): Promise<void>;
}

function begin(it: Case, place: Place): Caller {
  const { process: apart } = it.fault ?? {};
  return apart !== undefined && it.feature.ownProcess !== true
    ? beginApart(it, place)
    : beginHere(it.feature, place);
}

function beginHere(feature: Feature, place: Place, ready: () => void = () => {}): Caller {
  let pid = 0;
  const scene = sceneOf(place, (id) => {
    pid = id;
  });
  let closing: Promise<unknown> | undefined;
  let client: unknown;
  const close = async () => {
    closing ??= feature.close(client, scene);
    await closing;
  };
  const opened = (async () => {
    client = await feature.open(scene);
    ready();
    return { outcome: limited(outcomeOf(feature.first(client, scene))) };
  })();
  return {
    opened,
    close: () => void close(),
    signal: (signal) => signalTo(pid, signal),
    end: async () => {
      await opened.catch(() => {});
      if (client !== undefined) await close();
    },
  };
}

/** Sends a signal to a process that may have ended. */
function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function beginApart({ list, feature }: Case, place: Place): Caller {
  process.setMaxListeners(50);
  const child = fork(join(__dirname, 'caller.js'), [list, feature.name, JSON.stringify(place)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    execArgv: [],
  });
  const kill = () => void child.kill('SIGKILL');
  process.once('exit', kill);
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  void gone.then(() => process.off('exit', kill));
  const outcome = new Promise<Outcome>((resolve) => {
    child.once('message', (message) => resolve(message as Outcome));
    void gone.then(() => resolve({ killed: true }));
  });
  return {
    opened: Promise.resolve({ outcome }),
    close: () => {},
    signal: (signal) => void child.kill(signal),
    end: async () => {
      if (child.exitCode === null && child.signalCode === null) child.send('end');
      await endOf(child, gone);
    },
  };
}

async function endOf(child: ChildProcess, gone: Promise<void>): Promise<void> {
  child.kill('SIGCONT');
  await Promise.race([gone, sleep(PATIENCE_MS, undefined, { ref: false })]);
  child.kill('SIGKILL');
  await gone;
}

/** The first caller's outcome, or that it has none. */
async function limited(outcome: Promise<Outcome>): Promise<Outcome> {
  const never = { name: 'Never', message: `it did not end within ${2 * PATIENCE_MS} ms` };
  const late = new AbortController();
  const patience = sleep(2 * PATIENCE_MS, { error: never }, { signal: late.signal });
  const ended = await Promise.race([outcome, patience.catch(() => ({ error: never }))]);
  late.abort();
  return ended;
}

interface Parts {
  readonly wire: Wire;
  readonly caller: Caller;
  readonly ended: { outcome: Promise<Outcome> };
  second(): Promise<Outcome>;
}

/** The second caller runs after the first, or while that is stopped. */
async function inOrder(fault: Fault | undefined, { wire, caller, ended, second }: Parts) {
  if (fault?.process === undefined) {
    const first = await ended.outcome;
    const requests = [...wire.requests];
    wire.restore();
    return { first, requests, second: await second() };
  }
  let over = false;
  void ended.outcome.then(() => {
    over = true;
  });
  await wire.untilMet(() => over);
  const other = await second();
  caller.signal('SIGCONT');
  return { first: await ended.outcome, requests: [...wire.requests], second: other };
}

async function callSecond(feature: Feature, place: Place, prepared: unknown): Promise<Outcome> {
  // No fault meets it: its own lease must not end, however slow the machine is.
  const scene = sceneOf({ ...place, ttl: LONG_MS });
  const client = await feature.open(scene);
  try {
    return await limited(outcomeOf(feature.second(client, scene, prepared)));
  } finally {
    await feature.close(client, scene);
  }
}

/** On the store in the process the manager is closed at each of its operations. */
async function breakInMemory(feature: Feature) {
  const { count } = await tryInMemory(feature, 0, 'none');
  const seen: Tried[] = [];
  for (let step = 1; step <= count; step += 1) {
    for (const { name, closes } of FAULTS) {
      if (closes === true) seen.push((await tryInMemory(feature, step, name)).tried);
    }
  }
  return { count, seen };
}

async function tryInMemory(feature: Feature, step: number, fault: string) {
  const place = placeOf({ url: `memory:steps-${cases}`, ttl: LONG_MS });
  const scene = sceneOf(place);
  const { opened, operations } = await Operations.besides(async () => {
    const prepared = await feature.prepare?.(scene);
    // A store of the process lasts as long as somebody is connected.
    return { prepared, keeper: await feature.open(scene) };
  });
  const { prepared, keeper } = opened;
  const caller = beginHere(feature, { ...place, who: 'first', given: prepared?.given }, () =>
    operations.begin(step, (outcome) => {
      if (fault.includes('before')) caller.close();
      else void outcome.then(caller.close, caller.close);
    }),
  );
  const first = await (await caller.opened).outcome;
  const { count } = operations;
  const second = await callSecond(feature, { ...place, who: 'second' }, prepared);
  await caller.end();
  const again = await callSecond(feature, { ...place, who: 'again' }, prepared);
  await prepared?.close?.();
  await feature.close(keeper, scene);
  operations.end();
  const what = { fault: `memory:, ${fault}`, step, request: `operation ${step}`, met: true };
  const effects = effectsOf(place);
  return { count, tried: { ...what, first, second, again, effects, store: {}, prepared } };
}

function contradictions(feature: Feature, seen: Tried): { of: Tried; text: string }[] {
  return Object.entries(feature.promises).flatMap(([promise, isKept]) => {
    if (isKept(seen)) return [];
    const { request, fault, step, first, second, again, effects, store } = seen;
    const lines = {
      ...{ request, first, second, again },
      ...{ effects, store },
    };
    const shown = Object.entries(lines).map(
      ([key, value]) => `    ${key}: ${JSON.stringify(value)}`,
    );
    const head = `${feature.name}: broken: ${promise}\n  ${fault}, step ${step}`;
    return [{ of: seen, text: [head, ...shown].join('\n') }];
  });
}
