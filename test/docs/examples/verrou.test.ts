/** The store for verrou: the suite that verrou publishes for stores, and a lock that goes from one process to another. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../../support/child.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { Program } from './program.js';

/** The parts of verrou that are used here: its types need japa. */
interface Verrou {
  registerStoreTestSuite(options: { test: unknown; createStore(): unknown }): void;
}
interface Store {
  save(key: string, owner: string, ttl: number | null): Promise<boolean>;
  delete(key: string, owner: string): Promise<void>;
  extend(key: string, owner: string, duration: number): Promise<void>;
  exists(key: string): Promise<boolean>;
}
type StoreOf = (options: { locks: LockManager }) => { factory(): Store };

/** One test of verrou's suite. */
interface Case {
  readonly title: string;
  readonly run: (context: { assert: typeof ASSERT }) => Promise<void>;
  error?: new () => Error;
}

/** What verrou's suite expects of an `assert`. */
const ASSERT = {
  isTrue: (value: unknown) => assert.equal(value, true),
  isFalse: (value: unknown) => assert.equal(value, false),
  isString: (value: unknown) => assert.equal(typeof value, 'string'),
  equal: assert.equal,
  deepEqual: assert.deepEqual,
  rejects: (run: () => Promise<unknown>, message: string) => assert.rejects(run, { message }),
};

let server: RedisServer;
let storeOf: StoreOf;

before(async () => {
  server = await RedisServer.start();
  const file = pathToFileURL(join(ROOT, 'examples', 'verrou', 'store.mjs')).href;
  storeOf = ((await import(file)) as { holdfastStore: StoreOf }).holdfastStore;
});

after(() => server?.stop());

async function casesOf(createStore: () => Store): Promise<Case[]> {
  const cases: Case[] = [];
  const declare = (title: string, run: Case['run']) => {
    const each: Case = { title, run };
    cases.push(each);
    return {
      throws: (_: string, error: new () => Error) => {
        each.error = error;
      },
    };
  };
  const suite = '@verrou/core/test_suite';
  ((await import(suite)) as Verrou).registerStoreTestSuite({ test: declare, createStore });
  return cases;
}

async function passSuite(t: TestContext, place: string, targetOf: (title: string) => string) {
  let locks: LockManager;
  const cases = await casesOf(() => storeOf({ locks }).factory());
  for (const { title, run, error } of cases) {
    const once = async () => {
      locks = await connect(targetOf(title));
      try {
        const ran = run({ assert: ASSERT });
        await (error === undefined ? ran : assert.rejects(ran, error));
      } finally {
        await locks.close();
        await server.admin.flushall();
      }
    };
    // Some of its cases look at a lock in the very ms in which its lease ends, so that a timer decides.
    await t.test(`${place}: ${title}`, () => once().catch(once).catch(once));
  }
  assert.equal(cases.length, 25);
}

test("verrou's suite for stores, on Redis", (t) => passSuite(t, 'Redis', () => server.url));

test("verrou's suite for stores, in memory:", (t) =>
  passSuite(t, 'memory:', (title) => `memory:${title}`));

test('a lock is its owner’s: another process extends and releases it, and nobody else does', async () => {
  const [a, b] = await Promise.all([connect(server.url), connect(server.url)]);
  const [here, there] = [a, b].map((locks) => storeOf({ locks }).factory()) as [Store, Store];
  assert.equal(await here.save('x', 'me', 60_000), true);
  assert.equal(await here.save('x', 'me', 60_000), false, 'not even its owner gets it twice');
  await assert.rejects(there.delete('x', 'you'), { code: 'E_LOCK_NOT_OWNED' });
  await assert.rejects(there.extend('x', 'you', 60_000), { code: 'E_LOCK_NOT_OWNED' });
  await a.close();
  assert.equal(await there.exists('x'), true, 'the end of the process leaves it');
  await there.extend('x', 'me', 120_000);
  assert.ok((await server.admin.pttl('lock:x')) > 100_000);
  await there.delete('x', 'me');
  assert.equal(await there.exists('x'), false);
  await b.close();
});

test('the programs hand a lock over by its text', async () => {
  const start = (file: string, ...args: string[]) =>
    new Program(`verrou/${file}`, { REDIS_URL: server.url }, ...args);
  const web = start('web.mjs', '7');
  assert.equal(await web.ended(), 0, web.lines.join('\n'));
  const second = start('web.mjs', '7');
  await second.ended();
  assert.deepEqual(second.lines, ['somebody is at it']);
  const worker = start('worker.mjs', String(web.lines[0]));
  assert.equal(await worker.ended(), 0, worker.lines.join('\n'));
  assert.deepEqual(worker.lines, ['goes on with order:7', 'locked: false']);
});
