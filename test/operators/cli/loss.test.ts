/** `holdfast run` when the lock is lost, or its server goes away: the command never outlives the lock. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, test } from 'node:test';
import { connect } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { environment, Running } from './support.js';

let server: RedisServer;
let env: NodeJS.ProcessEnv;

/** Servers are killed here: each test has its own. */
beforeEach(async () => {
  server = await RedisServer.start();
  env = environment(server);
});

afterEach(() => server.stop());

const SCRIPT = 'trap "echo told; exit 3" TERM; echo in; while :; do sleep 0.02; done';
/** Ignores signals, and has started a process that does so as well. */
const DEAF = `trap "" TERM; sh -c 'trap "" TERM; echo in $$; sleep 1000' & echo in $$; while :; do sleep 0.02; done`;

/** Other systems do not tell, and have no signal for it. */
const linux = { skip: process.platform !== 'linux' };

async function started(...options: readonly string[]): Promise<Running> {
  const args = ['run', 'job', '--ttl', '600ms', ...options, '--', 'sh', '-c', SCRIPT];
  const running = new Running(args, env);
  await running.says('in');
  return running;
}

async function release(): Promise<void> {
  const locks = await connect(server.url);
  assert.equal(await locks.forceRelease('job'), true);
  await locks.close();
}

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('a forced release stops the command', async () => {
  const running = await started();
  await release();
  const { code, stdout, stderr } = await running.ended;
  assert.deepEqual([code, stdout], [76, 'in\ntold\n']);
  assert.match(stderr, /^holdfast: lock "job" .*stolen/);
  assert.doesNotMatch(stderr, /had been lost/, 'it is told once');
});

test('a loss that is noticed only at the end is told as well', async () => {
  const pipe = `${server.folder}/pipe`;
  execFileSync('mkfifo', [pipe]);
  const words = ['sh', '-c', 'echo in; read line <"$1"', 'sh', pipe];
  // The lease is renewed, and its loss noticed, twenty seconds later.
  const running = new Running(['run', 'job', '--ttl', '60s', '--', ...words], env);
  await running.says('in');
  await server.admin.del('lock:job');
  writeFileSync(pipe, 'go on\n');
  const { code, stderr } = await running.ended;
  assert.deepEqual([code, stderr], [76, 'holdfast: lock "job" had been lost\n']);
});

test('with --json the loss is a document', async () => {
  const running = await started('--json');
  await release();
  const { code, stderr } = await running.ended;
  // The shell has something to say as well.
  const { error } = JSON.parse(stderr.split('\n', 1)[0] ?? '');
  assert.deepEqual([code, error.code, error.lock], [76, 'ERR_LOCK_LOST', 'job']);
});

test('a command that ignores SIGTERM is killed, and what it has started', async () => {
  const args = ['run', 'job', '--ttl', '600ms', '--grace', '200ms', '--', 'sh', '-c', DEAF];
  const running = new Running(args, env);
  await running.says(/in \d+\n(.*\n)*in \d+\n/);
  const pids = Array.from(running.stdout.matchAll(/in (\d+)/g), ([, pid]) => Number(pid));
  assert.ok(pids.length === 2 && pids.every(alive));
  await release();
  const { code } = await running.ended;
  assert.equal(code, 76);
  await until(() => !pids.some(alive), 'all of them to end');
});

test('what a command leaves behind that heeds SIGTERM is killed as well', async () => {
  const inner = `trap "" TERM; echo in $$; sleep 1000`;
  const outer = `trap "exit 3" TERM; sh -c '${inner}' & while :; do sleep 0.02; done`;
  const args = ['run', 'job', '--ttl', '600ms', '--grace', '200ms', '--', 'sh', '-c', outer];
  const running = new Running(args, env);
  await running.says(/in \d+\n/);
  const pid = Number(/in (\d+)/.exec(running.stdout)?.[1]);
  await release();
  assert.equal((await running.ended).code, 76);
  await until(() => !alive(pid), 'it to end');
});

/** Starts a process of its group whose parent never takes note of its end, as some programs that are PID 1 of a container do not. */
const CARELESS = `
  $SIG{TERM} = sub { exit 3 };
  if (!fork) {
    if (!fork) { $SIG{TERM} = "DEFAULT"; sleep 1000; exit }
    setpgrp(0, 0);
    $| = 1;
    print "in $$\\n";
    close STDOUT; close STDERR;
    sleep 1000;
    exit;
  }
  sleep 1000;
`;

test('a process that has ended unnoticed is not waited for', linux, async () => {
  const args = ['run', 'job', '--ttl', '600ms', '--grace', '1h', '--', 'perl', '-e', CARELESS];
  const running = new Running(args, env);
  await running.says(/in \d+\n/);
  try {
    await release();
    let code: number | null | undefined;
    void running.ended.then((ended) => ({ code } = ended));
    await until(() => code !== undefined, 'the end');
    assert.equal(code, 76);
  } finally {
    running.child.kill('SIGKILL');
    process.kill(Number(/in (\d+)/.exec(running.stdout)?.[1]), 'SIGKILL');
  }
});

test('a command can be told to end with the command line', linux, async () => {
  const words = ['setpriv', '--pdeathsig', 'TERM', 'sh', '-c', `echo $$; ${SCRIPT}`];
  const running = new Running(['run', 'job', '--', ...words], env);
  await running.says('in');
  running.child.kill('SIGKILL');
  const { stdout } = await running.ended;
  assert.match(stdout, /^\d+\nin\ntold\n$/);
  await until(() => !alive(Number.parseInt(stdout, 10)), 'it to end');
});

test('a server that is gone stops the command before its lease ends', async () => {
  const running = await started();
  const killed = performance.now();
  await server.kill();
  const { code, stdout, stderr } = await running.ended;
  assert.deepEqual([code, stdout], [76, 'in\ntold\n']);
  assert.match(stderr, /lock "job" .*(expired|lease)/);
  assert.ok(performance.now() - killed > 200, 'it was tried again first');
});

test('a server that hangs stops the command as well', async () => {
  const running = await started();
  server.pause();
  assert.equal((await running.ended).code, 76);
});

test('a restart that keeps the data is survived', async () => {
  await server.stop();
  server = await RedisServer.start({ persistent: true });
  env = environment(server);
  const script = 'echo in; read line <"$1"; echo out';
  const pipe = `${server.folder}/pipe`;
  execFileSync('mkfifo', [pipe]);
  const running = new Running(
    ['run', 'job', '--ttl', '5s', '--', 'sh', '-c', script, 'sh', pipe],
    env,
  );
  await running.says('in');
  const before = await server.admin.pttl('lock:job');
  await server.restart();
  // A lease that is longer than what was left of the old one: it was renewed at the new process.
  await until(async () => (await server.admin.pttl('lock:job')) > before - 1_000, 'its renewal');
  await until(async () => (await server.admin.pttl('lock:job')) > 4_500, 'a later renewal');
  writeFileSync(pipe, 'go on\n');
  const { code, stdout, stderr } = await running.ended;
  assert.deepEqual([code, stdout, stderr], [0, 'in\nout\n', '']);
  assert.equal(await server.admin.exists('lock:job'), 0);
});

test('a restart that loses the data stops the command', async () => {
  const args = ['run', 'job', '--ttl', '60s', '--', 'sh', '-c', SCRIPT];
  const running = new Running(args, env);
  await running.says('in');
  await server.restart();
  const { code, stdout } = await running.ended;
  assert.deepEqual([code, stdout], [76, 'in\ntold\n']);
});
