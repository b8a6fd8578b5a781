/** A process dies, or is stopped past its lease, while it handles a request; another gets the same request. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { type Answer, post } from './services.js';

let redis: RedisServer;

before(async () => {
  redis = await RedisServer.start();
});

after(() => redis?.stop());

/** Starts a process of the service; its handler waits `before` or `after` its effect, as the body says. */
async function start(...flags: string[]): Promise<{ child: ChildProcess; url: string }> {
  const file = join(ROOT, 'build', 'test', 'adapters', 'idempotency', 'payments.js');
  const child = spawn(process.execPath, [file, redis.url, ...flags], {
    // Express prints the errors of handlers otherwise.
    env: { ...process.env, NODE_ENV: 'test' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.once('exit', () => child.kill('SIGKILL'));
  for await (const url of createInterface(child.stdout)) return { child, url };
  throw new Error('the service ended before it listened');
}

const effects = async (key: string) => Number((await redis.admin.get(`effects:${key}`)) ?? 0);

/** Sends a request to the first process, and calls `fate` when it hangs at `point`. */
async function hang(point: 'before' | 'after', flags: string[], fate: NodeJS.Signals) {
  const [first, second] = await Promise.all([start(...flags), start(...flags)]);
  const key = randomUUID();
  const early = post(`${first.url}/payments`, key, { body: { point } }).catch(() => undefined);
  await until(async () => (await redis.admin.exists(`hangs:${key}`)) === 1, 'the handler to hang');
  first.child.kill(fate);
  const again = (): Promise<Answer> => post(`${second.url}/payments`, key, { body: { point } });
  const end = () => {
    for (const { child } of [first, second]) child.kill('SIGKILL');
  };
  return { key, again, early, end, first };
}

/** Repeats the request until it is not answered that another is outstanding: until the lease has ended. */
async function settled(again: () => Promise<Answer>): Promise<Answer> {
  let answer = await again();
  await until(async () => {
    if (!answer.text.includes('is outstanding')) return true;
    answer = await again();
    return false;
  }, 'the lease of the first to end');
  return answer;
}

test('a crash before the effects: the request runs again', async () => {
  const { key, again, end } = await hang('before', ['marks'], 'SIGKILL');
  const { status } = await settled(again);
  assert.deepEqual([status, await effects(key)], [201, 1]);
  end();
});

test('a crash after the effects: the request is answered 409, and does not run again', async () => {
  for (const flags of [['marks'], []]) {
    const { key, again, end } = await hang('after', flags, 'SIGKILL');
    const { status, text } = await settled(again);
    assert.deepEqual([status, await effects(key)], [409, 1]);
    assert.match(text, /The outcome of the request for this Idempotency-Key is unknown/);
    end();
  }
});

test('a crash after the effects, with recover: the handler is told, and finds out itself', async () => {
  const { key, again, end } = await hang('after', ['marks', 'recover'], 'SIGKILL');
  const { status, text } = await settled(again);
  assert.deepEqual([status, text, await effects(key)], [201, '{"paid":true,"recovered":true}', 1]);
  end();
});

test('a process that was stopped past its lease before its effects has none', async () => {
  const { key, again, early, end, first } = await hang('before', ['marks'], 'SIGSTOP');
  assert.equal((await settled(again)).status, 201);
  first.child.kill('SIGCONT');
  await redis.admin.set(`goon:${key}`, 1);
  assert.equal((await early)?.status, 500);
  assert.equal(await effects(key), 1);
  const { status, headers } = await again();
  assert.deepEqual([status, headers.get('idempotency-replayed')], [201, 'true']);
  end();
});

test('a process that was stopped past its lease after its effects still tells how it ended', async () => {
  const { key, again, early, end, first } = await hang('after', ['marks'], 'SIGSTOP');
  assert.equal((await settled(again)).status, 409);
  first.child.kill('SIGCONT');
  await redis.admin.set(`goon:${key}`, 1);
  const told = await early;
  assert.equal(told?.status, 201);
  await until(async () => (await again()).digest === told?.digest, 'the late answer to be stored');
  assert.equal(await effects(key), 1);
  end();
});
