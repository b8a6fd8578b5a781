/** `holdfast lead`: the command runs on one machine at a time, and on another when that one ends. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { ends, environment, Running } from './support.js';

/** Says that it runs until SIGTERM comes. */
const SCRIPT =
  'trap "echo told; exit 3" TERM; echo "$HOLDFAST_LOCK $HOLDFAST_FENCE $$"; while :; do sleep 0.02; done';
const DEAF = 'trap "" TERM; echo "$HOLDFAST_LOCK $HOLDFAST_FENCE $$"; while :; do sleep 0.02; done';

let env: NodeJS.ProcessEnv;
let locks: LockManager;
let running: Running[] = [];

const server = serverOfFile({}, async () => {
  env = environment(server);
  locks = await connect(server.url);
});

afterEach(async () => {
  for (const { child } of running) child.kill('SIGTERM');
  await Promise.all(running.map(({ ended }) => ended));
  running = [];
  await server.admin.flushall();
});

/** Starts one, and waits until it is in the queue behind so many others. */
async function start(waiters: number | undefined, script: string, ...options: string[]) {
  const args = ['lead', 'job', ...options, '--', 'sh', '-c', script];
  const started = new Running(args, env);
  running.push(started);
  if (waiters === undefined) await started.says(/leader:job \d+ \d+\n/);
  else {
    const pending = async () => (await locks.query({ name: 'leader:job' })).pending.length;
    await until(async () => (await pending()) === waiters, 'it to wait');
  }
  return started;
}

/** The fences and process ids of the commands that it has run. */
function runs({ stdout }: Running): [fence: number, pid: number][] {
  return Array.from(stdout.matchAll(/leader:job (\d+) (\d+)\n/g), ([, fence, pid]) => [
    Number(fence),
    Number(pid),
  ]);
}

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('a signal ends the command, and the next runs it at once', async () => {
  const first = await start(undefined, SCRIPT, '--ttl', '120s', '--label', 'web-1');
  const second = await start(1, SCRIPT, '--ttl', '120s');
  assert.equal((await locks.leader('job'))?.label, 'web-1');
  first.child.kill('SIGTERM');
  const { code, stdout, stderr } = await first.ended;
  assert.equal(code, 3);
  assert.match(stdout, /told\n$/);
  const [[fence] = [0]] = runs(first);
  // The shell has something to say as well.
  assert.deepEqual(stderr.match(/^holdfast: .*/gm), [`holdfast: leads "job" with fence ${fence}`]);
  await second.says(/leader:job/);
  assert.ok((runs(second)[0]?.[0] ?? 0) > fence);
});

test('a signal ends the wait', async () => {
  await start(undefined, SCRIPT);
  const second = await start(1, SCRIPT);
  second.child.kill('SIGINT');
  const { code, stdout } = await second.ended;
  assert.deepEqual([code, stdout], [130, '']);
});

test('a command that ends runs again in the next term, and a signal ends the pause before', async () => {
  const script = 'echo "$HOLDFAST_LOCK $HOLDFAST_FENCE $$"; exit 5';
  const only = await start(undefined, script);
  await until(() => runs(only).length === 4, 'four runs');
  await until(async () => (await locks.leader('job')) === null, 'the pause');
  only.child.kill('SIGTERM');
  const { code, stderr } = await only.ended;
  // Of the signal, or of a run that began at the same time.
  assert.ok(code === 143 || code === 5, `${code}`);
  const fences = runs(only).map(([fence]) => fence);
  assert.deepEqual(fences, [...fences].sort());
  assert.match(stderr, /the command has ended with exit code 5/);
});

test('if the lead is lost the command is stopped, after the grace by force, and runs in the next term', async () => {
  const only = await start(undefined, DEAF, '--grace', '200ms');
  const [[, pid] = [0, 0]] = runs(only);
  assert.ok(await locks.forceRelease('leader:job'));
  await until(() => runs(only).length === 2, 'the next term');
  assert.ok(!alive(pid));
  assert.match(only.stderr, /lock "leader:job" is not held any more: somebody has stolen it/);
  only.child.kill('SIGTERM');
  const [, [, second] = [0, 0]] = runs(only);
  process.kill(-second, 'SIGKILL');
  const { code } = await only.ended;
  // The command has ended by force. If that is seen ahead of the signal, the signal ends the pause that follows.
  assert.ok(code === 137 || code === 143, `${code}`);
});

test('a command that cannot be started is tried once', async () => {
  await ends(127, env, 'lead', 'job', '--', '/no/such/command');
  await ends(126, env, 'lead', 'job', '--', '/etc/passwd');
  await ends(64, env, 'lead', 'job', '--ttl', '1ms', '--', 'true');
  await ends(64, env, 'lead', 'job', '--wait', '1s', '--', 'true');
  await ends(
    69,
    environment(undefined, { HOLDFAST_URL: 'redis://127.0.0.1:1' }),
    'lead',
    'job',
    '--',
    'true',
  );
});

test('ls and show tell leaders from other locks', async () => {
  const stop = new AbortController();
  const leading = locks.lead('job', { signal: stop.signal, label: 'web-1' }, ({ signal }) => {
    return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  });
  await using other = await locks.acquire('other');
  assert.ok(other.held);
  await until(async () => (await locks.leader('job')) !== null, 'a leader');
  const { stdout } = await ends(0, env, 'ls');
  assert.match(stdout, /^leader:job +leader +web-1 /m);
  assert.match(stdout, /^other +exclusive /m);
  const { locks: all } = JSON.parse((await ends(0, env, 'ls', '--json')).stdout);
  assert.deepEqual(
    all.map(({ kind, mode }: { kind: string; mode: string }) => [kind, mode]),
    [
      ['leader', 'exclusive'],
      ['lock', 'exclusive'],
    ],
  );
  assert.match((await ends(0, env, 'show', 'leader:job')).stdout, /is held, leader\./);
  stop.abort();
  await leading;
});
