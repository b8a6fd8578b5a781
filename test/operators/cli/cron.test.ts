/** One job in the crontab of many machines: `run --once`, and `run --if-available --at-least`, run it once. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { ends, environment, Running } from './support.js';

let env: NodeJS.ProcessEnv;

const server = serverOfFile({}, () => {
  env = environment(server);
});

const leaseOf = (name: string) => server.admin.pttl(`lock:${name}`);

test('of twenty machines one runs it, also if some are late', async () => {
  const file = join(server.folder, 'runs');
  const words = ['--', 'sh', '-c', 'echo "$HOLDFAST_FENCE" >> "$1"', 'sh', file];
  const args = ['run', 'nightly', '--if-available', '--at-least', '1h', '-E', '0', ...words];
  const inTime = Array.from({ length: 14 }, () => new Running(args, env));
  // The job is over long before these start.
  await Promise.all(inTime.map(({ ended }) => ended));
  const late = Array.from({ length: 6 }, () => new Running(args, env));
  const all = await Promise.all([...inTime, ...late].map(({ ended }) => ended));
  for (const { code, stdout, stderr } of all) assert.deepEqual([code, stdout, stderr], [0, '', '']);
  assert.equal(readFileSync(file, 'utf8').trim().split('\n').length, 1);
});

test('what is left of --at-least is the lease that the lock is left with, and nobody renews it', async () => {
  await ends(0, env, 'run', 'short', '--at-least', '40s', '--', 'true');
  const left = await leaseOf('short');
  assert.ok(left > 20_000 && left <= 40_000, `${left} ms`);
  await ends(75, env, 'run', 'short', '--if-available', '--', 'true');
});

test('afterwards the lock is free', async () => {
  // The lease is long enough for a machine that is busy: a lock that is lost ends the command.
  await ends(0, env, 'run', 'free', '--ttl', '3s', '--at-least', '4s', '--', 'true');
  await ends(0, env, 'run', 'free', '--wait', '60s', '--', 'true');
});

test('it is kept also if the command fails or is ended, with the code of the command', async () => {
  await ends(7, env, 'run', 'failed', '--at-least', '40s', '--', 'sh', '-c', 'exit 7');
  assert.ok((await leaseOf('failed')) > 20_000);
  const script = 'echo in; while :; do sleep 0.02; done';
  const running = new Running(['run', 'ended', '--at-least', '40s', '--', 'sh', '-c', script], env);
  await running.says('in');
  running.child.kill('SIGTERM');
  assert.equal((await running.ended).code, 128 + 15);
  assert.ok((await leaseOf('ended')) > 20_000);
});

test('a command that runs longer than --at-least gives the lock back', async () => {
  await ends(0, env, 'run', 'long', '--at-least', '100ms', '--', 'sleep', '0.2');
  assert.equal(await leaseOf('long'), -2);
});

test('a lock that is lost is not kept', async () => {
  const script = 'echo in; while :; do sleep 0.02; done';
  const args = ['run', 'lost', '--ttl', '300ms', '--at-least', '1h', '--', 'sh', '-c', script];
  const running = new Running(args, env);
  await running.says('in');
  const locks = await connect(server.url);
  assert.equal(await locks.forceRelease('lost'), true);
  await locks.close();
  assert.equal((await running.ended).code, 76);
  assert.equal(await leaseOf('lost'), -2);
});

test('a server that is away in the end is told of, and the code is that of the command', async () => {
  const own = await RedisServer.start();
  try {
    const script = 'echo in; read line <"$1"; exit 4';
    const pipe = join(own.folder, 'pipe');
    await ends(0, env, 'run', 'pipe', '--', 'mkfifo', pipe);
    const args = ['run', 'away', '--ttl', '1h', '--', 'sh', '-c', script, 'sh', pipe];
    const running = new Running(args, environment(own));
    await running.says('in');
    own.pause();
    await ends(0, env, 'run', 'pipe', '--', 'sh', '-c', 'echo on > "$1"', 'sh', pipe);
    const { code, stderr } = await running.ended;
    assert.equal(code, 4);
    assert.match(stderr, /^holdfast: cannot release lock "away" on /);
  } finally {
    await own.stop();
  }
});

test('who is killed leaves the lease of --ttl, no more', async () => {
  const script = 'echo in; sleep 1';
  const args = ['run', 'killed', '--ttl', '300ms', '--at-least', '1h', '--', 'sh', '-c', script];
  const running = new Running(args, env);
  await running.says('in');
  running.child.kill('SIGKILL');
  await until(async () => (await leaseOf('killed')) === -2, 'its lease to end', 5_000);
  await running.ended;
});

test('of ten machines one runs it with --once, and a late one finds the slot done', async () => {
  const file = join(server.folder, 'slots');
  const words = ['--', 'sh', '-c', 'echo "$HOLDFAST_SLOT" >> "$1"', 'sh', file];
  const args = ['run', 'daily', '--once', '2026-01-31', '-E', '0', ...words];
  const all = await Promise.all(Array.from({ length: 10 }, () => new Running(args, env).ended));
  for (const { code, stdout, stderr } of all) assert.deepEqual([code, stdout, stderr], [0, '', '']);
  assert.equal(readFileSync(file, 'utf8'), '2026-01-31\n');
  const { stderr } = await ends(75, env, 'run', 'daily', '--once', '2026-01-31', '--', 'true');
  assert.equal(stderr, 'holdfast: lock "daily": slot 2026-01-31 is done\n');
  await ends(0, env, 'run', 'daily', '--once', '1d', '--', 'sh', '-c', 'date -d "$HOLDFAST_SLOT"');
});

test('with --once a command that fails is run again only with --retry', async () => {
  const fails = ['--', 'sh', '-c', 'exit 7'];
  await ends(7, env, 'run', 'job', '--once', 'a', ...fails);
  await ends(75, env, 'run', 'job', '--once', 'a', '--', 'true');
  await ends(7, env, 'run', 'job', '--once', 'b', '--retry', ...fails);
  await ends(0, env, 'run', 'job', '--once', 'b', '--retry', '--keep', '60d', '--', 'true');
  await ends(75, env, 'run', 'job', '--once', 'b', '--retry', '--', 'true');
  assert.ok((await leaseOf('once:job@b')) > 59 * 86_400_000);
  await ends(64, env, 'run', 'job', '--retry', '--', 'true');
  await ends(64, env, 'run', 'job', '--once', 'a', '--at-least', '1s', '--', 'true');
});

test('with --once a lock that is lost ends the command, and the slot is run again', async () => {
  const script = 'echo in; while :; do sleep 0.02; done';
  const args = ['run', 'robbed', '--once', 's', '--retry', '--', 'sh', '-c', script];
  const running = new Running(args, env);
  await running.says('in');
  const locks = await connect(server.url);
  assert.equal(await locks.forceRelease('robbed'), true);
  await locks.close();
  const { code, stderr } = await running.ended;
  assert.equal(code, 76);
  assert.equal(stderr.trim().split('\n').length, 1, stderr);
  await ends(0, env, 'run', 'robbed', '--once', 's', '--retry', '--', 'true');
});

test('with --once a server that refuses the lock or the slot is told of, and the command is not run', async () => {
  await server.admin.hset('lock:other-data', 'a', 'b');
  await server.admin.hset('lock:once:job@other-data', 'a', 'b');
  for (const [name, slot, ...options] of [
    ['other-data', 'a'],
    ['other-data', 'a', '--retry'],
    ['job', 'other-data'],
    ['job', 'other-data', '--retry'],
  ] as const) {
    const args = ['run', name, '--once', slot, ...options, '--', 'echo', 'ran'];
    const { stdout, stderr } = await ends(69, env, ...args);
    assert.equal(stdout, '');
    assert.match(stderr, /^holdfast: cannot acquire lock .* WRONGTYPE /);
  }
});

test('with --retry a slot that cannot be marked is told of, and the code is that of the command', async () => {
  const mark = 'lock:once:unmarked@s';
  const pipe = join(server.folder, 'unmarked');
  await ends(0, env, 'run', 'pipe', '--', 'mkfifo', pipe);
  const words = ['--', 'sh', '-c', 'echo in; read line <"$1"', 'sh', pipe];
  const others = [
    () => server.admin.hset(mark, 'other', 'data'),
    () => server.admin.set(mark, 'other data'),
  ];
  const cases = others.flatMap((write) => [[write] as const, [write, '--json'] as const]);
  for (const [write, ...json] of cases) {
    const args = ['run', 'unmarked', '--once', 's', '--retry', ...json];
    const running = new Running([...args, ...words], env);
    await running.says('in');
    await server.admin.del(mark);
    await write();
    await ends(0, env, 'run', 'pipe', '--', 'sh', '-c', 'echo on > "$1"', 'sh', pipe);
    const { code, stderr } = await running.ended;
    assert.equal(code, 0, stderr);
    const said = json.length === 0 ? stderr : JSON.parse(stderr).error.message;
    assert.match(said, /"unmarked" has ended well .* may not be marked as done/);
    assert.doesNotMatch(stderr, /^\s+at /m, 'no defect of holdfast');
    await server.admin.del(mark);
  }
});
