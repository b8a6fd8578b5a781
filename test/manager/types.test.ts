/** What the compiler says of wrong calls: it names the option or the event, and points to it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { problemsOf } from '../docs/compile.js';

/** Each wrong call, and all that the compiler says of it. */
const WRONG: Readonly<Record<string, RegExp>> = {
  "locks.acquire('a', { tttl: 5 })":
    /'tttl' does not exist in type 'AcquireOptions'. Did you mean to write 'ttl'/,
  "locks.acquire('a', {\nttl: '10' })":
    /^2: .*"10".* not assignable to type 'Duration | undefined'/,
  "locks.acquire(['a'], {\nwait: true })":
    /^2: .*'true' is not assignable to type 'Duration | undefined'/,
  "locks.acquire(['a'], { wiat: 5 })": /'wiat' does not exist in type 'AcquireOptions'/,
  'locks.acquire(5)':
    /'number' is not assignable to parameter of type 'string | readonly string\[\]'/,
  "locks.tryAcquire('a', { wait: 5 })": /'wait' does not exist in type 'TryAcquireOptions'/,
  "locks.tryAcquire(['a'], { wait: 5 })": /'wait' does not exist in type 'TryAcquireOptions'/,
  "locks.request('a', { wiat: 5 }, () => 1)": /'wiat' does not exist in type 'RequestOptions/,
  "locks.request('a', {\nwait: '5' }, async () => 1)":
    /^2: .*"5".* not assignable to type 'Duration | undefined'/,
  "locks.request('a', { mode: 'share' }, () => 1)": /Did you mean '"shared"'/,
  "locks.request(['a', 'b'], { limt: 5 }, (both) => both.release())":
    /'limt' .* Did you mean to write 'limit'/,
  "locks.request('a', { ifAvailable: true }, (lock) => lock.fence)": /'lock' is possibly 'null'/,
  "locks.runOnce('a', { evry: '1h' }, () => 1)": /'evry' .*Did you mean to write 'every'/,
  "locks.advance('10')": /"10".* not assignable to parameter of type 'Duration'/,
  "locks.on('losst', () => {})":
    /"losst".* not assignable to parameter of type 'keyof LockManagerEvents'/,
  "locks.once('error', () => {})":
    /"error".* not assignable to parameter of type 'keyof LockManagerEvents'/,
  "locks.off('losst', () => {})": /"losst"/,
  "locks.on('lost', (lock: string) => lock)": /'Lock' is not assignable to type 'string'/,
};

/** What compiles, with the types that it has. */
const RIGHT = `import { once } from 'node:events';
import type { AcquireOptions, Duration, Lock, LockManager, LockSet, RequestOptions } from 'holdfast';
const locks = {} as LockManager;
const either = 'a' as string | readonly string[];
const options: RequestOptions = {};
const ttl = '1s' as Duration;
const lock: Lock = await locks.acquire('a', { ttl, wait: '1.5s', maxHold: Infinity });
const both: LockSet = await locks.acquire(['a', 'b']);
const any: Lock | LockSet = await locks.acquire(either, undefined);
const tried: Lock | null = await locks.tryAcquire('a', { ttl: '1h' });
const fence: number = await locks.request('a', (held) => held.fence);
const fences: string = await locks.request(['a', 'b'], async (held) => held.names.join());
const typed: string = await locks.request<string>('a', (held) => held.name);
const maybe: number | undefined = await locks.request('a', { ifAvailable: true }, (held) => held?.fence);
const sure: number = await locks.request('a', { wait: '5s', ifAvailable: false }, (held) => held.fence);
const open: number | undefined = await locks.request('a', options, (held: Lock | null) => held?.fence);
const none: number = await locks.request('a', undefined, (held) => held.fence);
const nothing: void = await locks.request('a', () => {});
const [lost] = await once(locks, 'lost');
const emitter: NodeJS.EventEmitter = locks;
locks.on('lost', (gone, error) => console.log(gone.fence, error.reason)).once('close', () => {});
const wrapped = (name: string, given?: AcquireOptions) => locks.acquire(name, given);
const held: Lock = await wrapped('a');
await lock.extend('20s');
console.log(both, any, tried, fence, fences, typed, maybe, sure, open, none, nothing, lost, emitter, held);
`;

test('a wrong call gets one message, which names the option or the event or points to it', () => {
  const calls = Object.keys(WRONG);
  const blocks = calls.map((code, i) => ({ page: `${i}`, line: 0, language: 'ts', code }));
  const problems = problemsOf(blocks);
  for (const [i, call] of calls.entries()) {
    const of = problems.filter((problem) => problem.startsWith(`${i}:`));
    const said = of.map((problem) => problem.slice(`${i}:`.length));
    assert.equal(said.length, 1, `${call}\n${said.join('\n')}`);
    assert.match(said.join(), WRONG[call] as RegExp, call);
    assert.doesNotMatch(said.join(), /No overload/, call);
  }
});

test('right calls compile, with the types of what they give', () => {
  const block = { page: 'right', line: 1, language: 'ts', code: RIGHT };
  assert.deepEqual(problemsOf([block]), []);
});
