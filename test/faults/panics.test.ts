/**
 * A panic in each entry of the native side, on the thread of JavaScript and on its own: nothing hangs, every promise
 * is settled, a lock that is lost is told, and the process goes on. The addon that can be asked to panic is built
 * here, with the feature `faults`; the one that is shipped cannot.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Ended, ended, ROOT } from '../support/child.js';
import { Cluster } from '../support/cluster.js';
import { buildFaultyAddon } from '../support/faulty-addon.js';
import { RedisServer } from '../support/server.js';

/** At which passes of an entry it panics. */
const HERE: Readonly<Record<string, readonly number[]>> = {
  bridge: [1],
  connect: [1, 2],
  drain: [1, 5],
  notice: [1],
  remaining: [1],
  stats: [1],
  submit: [1, 2, 5],
  survey: [1],
  text: [1, 2, 3],
  // On the only core of a machine nobody asks for it.
  unanswered: cpus().length > 1 ? [1] : [],
};
const THERE: Readonly<Record<string, readonly number[]>> = {
  complete: [1, 3],
  connecting: [1, 2],
  effects: [1, 8],
  input: [1, 4],
  "keeper's turn": [1, 8],
  lose: [1],
  ping: [1],
  push: [1],
  querying: [1],
  sending: [1, 4],
  surveying: [1],
  tell: [1],
  turn: [1, 8],
  turned: [1],
  wake: [1, 4],
};
const IN_A_CLUSTER: Readonly<Record<string, readonly number[]>> = {
  discovering: [1],
  subscriber: [1],
};

/** Does all that a manager can do; each promise must be settled, and each lock be held or lost. */
const PROGRAM = `
  import { createRequire } from 'node:module';
  const require = createRequire(process.cwd() + '/package.json');
  const problems = [];
  const load = () => require('holdfast');
  let holdfast;
  try {
    holdfast = load();
  } catch (error) {
    console.log('not loaded: ' + error.message);
    holdfast = load();
  }
  const { connect, LockError } = holdfast;
  const { survey } = require('./dist/internals.js');
  const place = JSON.parse(process.env.PLACE);
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const until = async (done, what) => {
    for (let i = 0; i < 1_500 && !done(); i++) await sleep(10);
    if (!done()) problems.push('never: ' + what);
  };
  let step = 0;
  // What a promise came to; a failure must be one that a caller can understand.
  const settled = async (promise) => {
    const number = ++step;
    const hung = Symbol('hung');
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, 15_000, hung);
    });
    const result = await Promise.race([Promise.resolve(promise).catch((error) => error), late]);
    clearTimeout(timer);
    if (result === hung) problems.push('step ' + number + ' hangs');
    if (result instanceof Error && !(result instanceof LockError)) problems.push(String(result.stack));
    return result instanceof Error || result === hung ? undefined : result;
  };
  const options = { commandTimeout: 1_000, connectTimeout: 2_000 };
  const manager = async () => (await settled(connect(place, options))) ?? settled(connect(place, options));
  const [a, b] = [await manager(), await manager()];
  const lost = new Set();
  for (const each of [a, b]) {
    each?.on('lost', (lock) => lost.add(lock));
    each?.on('disconnect', () => {});
    each?.on('warning', () => {});
  }
  const held = await settled(a?.acquire('held', { ttl: 600 }));
  const ends = await settled(b?.acquire('ends', { ttl: 60, renew: false }));
  await settled(survey(place, options, [['PING']]));
  for (let round = 0; round < 3; round++) {
    const lock = await settled(a?.acquire('x', { ttl: 5_000 }));
    const waiting = [b, a, b].map((each) => settled(each?.acquire('x', { ttl: 5_000, wait: 3_000 })));
    const stopped = settled(b?.acquire('x', { wait: 50, label: 'stopped' }));
    await sleep(100);
    await settled(lock?.extend(6_000));
    const free = waiting.map(async (each) => settled((await each)?.release()));
    await settled(lock?.release());
    await Promise.all([...free, stopped]);
    await settled((await settled(a?.tryAcquire(['y', 'z'])))?.release());
    const share = await settled(a?.acquire('s', { mode: 'shared', limit: 2, label: 'me' }));
    await settled(share?.release());
    await settled(a?.query());
    if (round === 1) await settled(survey(place, options, [['CLIENT', 'KILL', 'TYPE', 'pubsub']]));
    try {
      a?.stats();
    } catch (error) {
      problems.push('stats: ' + error);
    }
    if (held !== undefined && !(held.remaining >= 0)) problems.push('remaining');
  }
  // A lock of which nobody has heard that it is lost must be held.
  for (const lock of [held, ends]) {
    if (lock !== undefined) await until(() => lock.held || lost.has(lock), 'the loss of ' + lock.name);
  }
  if (ends !== undefined) await until(() => lost.has(ends), 'the end of a lease');
  // Others are not affected.
  const c = await manager();
  if (!(await settled((await settled(c?.acquire('other')))?.release()))) problems.push('others are');
  for (const each of [a, b, c]) await settled(each?.close());
  const { openOperations } = require('./dist/internals.js');
  await until(() => openOperations() === 0, 'the end of all operations');
  for (const problem of problems) console.log('problem: ' + problem);
  console.log('through');
`;

let addon = '';

function run(fault: string, place: unknown): Promise<Ended> {
  const env = {
    ...process.env,
    HOLDFAST_FAULT: fault,
    NAPI_RS_NATIVE_LIBRARY_PATH: addon,
    PLACE: JSON.stringify(place),
  };
  const flags = ['--input-type=module', '--eval', PROGRAM];
  return ended(spawn(process.execPath, flags, { cwd: ROOT, env, stdio: 'pipe' }));
}

async function endsWell(fault: string, place: unknown): Promise<void> {
  const { code, signal, stdout, stderr } = await run(fault, place);
  const story = `${fault}: ${stdout}${stderr}`;
  assert.ok(stderr.includes('the fault that was asked for'), `it did not panic: ${story}`);
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, story);
  assert.ok(stdout.endsWith('through\n') && !stdout.includes('problem'), story);
}

function tryAll(entries: Readonly<Record<string, readonly number[]>>, place: () => unknown): void {
  for (const [entry, passes] of Object.entries(entries)) {
    for (const pass of passes) {
      test(`a panic in "${entry}", at pass ${pass}`, () => endsWell(`${entry}@${pass}`, place()));
    }
  }
}

describe('panics', () => {
  let server: RedisServer;
  let cluster: Cluster;

  before(
    async () => {
      addon = buildFaultyAddon();
      server = await RedisServer.start();
      cluster = await Cluster.start();
    },
    { timeout: 280_000 },
  );

  after(async () => {
    await server?.stop();
    await cluster?.stop();
  });

  // What a process leaves behind is for its leases to end.
  beforeEach(() => server.admin.flushall());

  tryAll({ ...HERE, ...THERE }, () => server.url);
  tryAll(IN_A_CLUSTER, () => ({ cluster: cluster.urls }));
});

test('the addon that is shipped has no faults to ask for', () => {
  const folder = join(ROOT, 'native');
  const addons = readdirSync(folder).filter((file) => file.endsWith('.node'));
  assert.ok(addons.length > 0);
  for (const addon of addons) {
    assert.ok(!readFileSync(join(folder, addon)).includes('HOLDFAST_FAULT'), addon);
  }
});
