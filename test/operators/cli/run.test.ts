/** `holdfast run`: a command under a lock. Every way in which it ends has an exit code. */

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { removeFolder } from '../../support/folders.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { ends, environment, Running } from './support.js';

let server: RedisServer;
let locks: LockManager;
let env: NodeJS.ProcessEnv;
const folder = mkdtempSync(join(tmpdir(), 'holdfast-cli-'));

before(async () => {
  server = await RedisServer.start();
  locks = await connect(server.url);
  env = environment(server);
});

after(async () => {
  await locks.close();
  await server.stop();
  removeFolder(folder);
});

afterEach(async () => {
  assert.deepEqual(await locks.query(), { held: [], pending: [] }, 'a lock is left behind');
});

test('the command has the lock, and its name and fence in the environment', async () => {
  const script = 'echo $HOLDFAST_LOCK $HOLDFAST_FENCE $1; "$2" "$3" show "$HOLDFAST_LOCK" --json';
  const { MAIN } = await import('./support.js');
  const words = ['sh', '-c', script, 'sh', '--flag', process.execPath, MAIN];
  const { stdout } = await ends(0, env, 'run', 'job', '--label', 'me', '--', ...words);
  const [first, second = ''] = stdout.split('\n');
  const { mode, holders } = JSON.parse(second);
  assert.equal(first, `job ${await server.admin.get('holdfast:fence')} --flag`);
  assert.deepEqual([mode, holders.length, holders[0].label], ['exclusive', 1, 'me']);
  const share = await ends(0, env, 'run', 'job', '--mode', 'shared', '--', ...words);
  const [third, fourth = ''] = share.stdout.split('\n');
  assert.match(third ?? '', /^job \d{16} --flag$/);
  assert.equal(JSON.parse(fourth).mode, 'shared');
});

test('every later run has a greater fence', async () => {
  const words = ['sh', '-c', 'echo $HOLDFAST_FENCE'];
  const earlier = await ends(0, env, 'run', 'fences', '--', ...words);
  const later = await ends(0, env, 'run', 'fences', '--', ...words);
  assert.ok(Number(later.stdout) > Number(earlier.stdout));
});

test('input and output are those of the command', async () => {
  const script = 'read line; echo "out $line"; echo err >&2';
  const ended = await new Running(['run', 'stdio', '--', 'sh', '-c', script], env, 'hello\n').ended;
  assert.deepEqual([ended.code, ended.stdout, ended.stderr], [0, 'out hello\n', 'err\n']);
});

test('its exit code is that of the command, or 128 and the signal that ended it', async () => {
  await ends(7, env, 'run', 'codes', '--', 'sh', '-c', 'exit 7');
  await ends(128 + 9, env, 'run', 'codes', '--', 'sh', '-c', 'kill -9 $$');
  await ends(128 + 15, env, 'run', 'codes', '--', 'sh', '-c', 'kill -15 $$');
});

test('127 without the command, 126 if it cannot be executed, and the lock is released', async () => {
  const missing = await ends(127, env, 'run', 'none', '--at-least', '1h', '--', 'no-such-command');
  assert.equal(missing.stderr, 'holdfast: cannot run no-such-command: it was not found\n');
  const file = join(folder, 'text');
  writeFileSync(file, '#!/bin/sh\n');
  chmodSync(file, 0o644);
  const barred = await ends(126, env, 'run', 'none', '--', file);
  assert.equal(barred.stderr, `holdfast: cannot run ${file}: it is not executable\n`);
});

test('64 for wrong usage, before anything is sent', async () => {
  const nowhere = environment(undefined, { HOLDFAST_URL: 'redis://127.0.0.1:1' });
  const wrong: [RegExp, ...string[]][] = [
    [/missing required argument 'name'/],
    [/missing required argument 'command'/, 'a'],
    [/unknown option '--tttl'/, 'a', '--tttl', '5s', '--', 'true'],
    [/'5'.*Give a time with a unit: 500ms, 30s, 2m or 1h/, 'a', '--ttl', '5', '--', 'true'],
    [/'never'.*Give a time with a unit/, 'a', '--wait', 'never', '--', 'true'],
    [/'200000000d'.*No lease is longer than/, 'a', '--at-least', '200000000d', '--', 'true'],
    [/cannot be used with option '--if-available'/, 'a', '--if-available', '--wait', '1s', 'true'],
    [/Give a whole number from 1 to/, 'a', '--mode', 'shared', '--limit', '0', 'true'],
    [/Allowed choices are exclusive, shared/, 'a', '--mode', 'alone', 'true'],
    [/--url and --cluster exclude each other/, 'a', '--url', 'x', '--cluster', 'y', 'true'],
    [/--sentinel and --master belong together/, 'a', '--master', 'mymaster', 'true'],
    [/--ca: ENOENT: no such file/, 'a', '--ca', join(folder, 'nothing.pem'), 'true'],
    [/memory: ends with this command/, 'a', '--url', 'memory:', 'true'],
    [/the target is not a URL/, 'a', '--url', 'nonsense', 'true'],
  ];
  for (const [message, ...args] of wrong) {
    const { stderr } = await ends(64, nowhere, 'run', ...args);
    assert.match(stderr, message);
  }
});

test('64 for what the lock refuses before anything is sent', async () => {
  for (const [message, ...args] of [
    [/ttl must be/, '--ttl', '1ms', 'a'],
    [/limit needs mode 'shared'/, '--limit', '2', 'a'],
    [/permits needs a limit/, '--mode', 'shared', '--permits', '2', 'a'],
    [/permits must be/, '--mode', 'shared', '--limit', '2', '--permits', '3', 'a'],
    [/must not be empty/, ''],
    [/options.tls needs a URL that begins with rediss/, '--ca', MAKEFILE, 'a'],
  ] as const) {
    const { stderr } = await ends(64, env, 'run', ...args, '--', 'true');
    assert.match(stderr, message);
  }
});

/** Any file that can be read. */
const MAKEFILE = __filename;

test('69 if no server can be reached, and the command is not run', async () => {
  const nowhere = environment(undefined, { HOLDFAST_URL: 'redis://127.0.0.1:1' });
  const { stdout, stderr } = await ends(69, nowhere, 'run', 'a', '--', 'echo', 'ran');
  assert.equal(stdout, '');
  assert.match(stderr, /^holdfast: cannot connect to redis:\/\/127\.0\.0\.1:1\/0: /);
});

test('75 if another client holds it, or the code of -E; with -E 0 in silence', async () => {
  await using _ = await locks.acquire('held', { label: 'web-1' });
  const now = await ends(75, env, 'run', 'held', '--if-available', '--', 'echo', 'ran');
  assert.equal(now.stdout, '');
  assert.match(
    now.stderr,
    /^holdfast: lock "held" is not free: it is held by web-1, lease \d\S*s\n$/,
  );
  const later = await ends(75, env, 'run', 'held', '--wait', '50ms', '--', 'echo', 'ran');
  assert.equal(later.stdout, '');
  assert.match(later.stderr, /^holdfast: lock "held" was not free within .* held by "web-1"/);
  await ends(3, env, 'run', 'held', '--if-available', '-E', '3', '--', 'true');
  const silent = await ends(
    0,
    env,
    'run',
    'held',
    '--wait',
    '50ms',
    '-E',
    '0',
    '--',
    'echo',
    'ran',
  );
  assert.deepEqual([silent.stdout, silent.stderr], ['', '']);
});

test('the message names the holder also for other code, a semaphore and a slot', async () => {
  const busy = async (...args: string[]) =>
    (await ends(75, env, 'run', ...args, '--if-available', '--', 'true')).stderr;
  await server.admin.set('lock:old', 'x', 'PX', 60_000);
  assert.match(await busy('old'), /"old" is not free: it is held by other code, lease \d\S*s\n/);
  const share = { mode: 'shared', limit: 2 } as const;
  await using _ = await locks.acquire('api', { ...share, label: 'web-1' });
  await using __ = await locks.acquire('api', { ...share, label: 'web-2' });
  const limit = ['--mode', 'shared', '--limit', '2'];
  assert.match(await busy('api', ...limit), /held by web-[12] and 1 more, lease \d\S*s\n/);
  // As while the job of a slot runs.
  await using ___ = await locks.acquire('job', { label: 'web-3' });
  assert.match(await busy('job', '--once', '1h'), /"job" is not free: it is held by web-3, lease/);
});

test('with --json its own errors are documents, also for wrong usage', async () => {
  await using _ = await locks.acquire('held', { label: 'web-1' });
  const busy = await ends(75, env, 'run', 'held', '--json', '--if-available', '--', 'true');
  const { code, message, lock } = JSON.parse(busy.stderr).error;
  assert.deepEqual([code, lock], ['ERR_LOCK_HELD', 'held']);
  assert.match(message, /^lock "held" is not free: it is held by web-1, lease /);
  const wrong = await ends(64, env, 'run', '--json');
  assert.equal(JSON.parse(wrong.stderr).error.code, 'ERR_USAGE');
  const own = await ends(127, env, 'run', 'free', '--', 'no-such-command', '--json');
  assert.match(own.stderr, /^holdfast: /, 'behind -- it is an option of the command');
});

test('unless told otherwise, it does not wait without end', async () => {
  const { stdout } = await ends(0, env, 'run', '--help');
  assert.match(
    stdout,
    /--wait <time> +how long to wait for the lock, or forever\s+\(default: 10s\)/,
  );
  assert.match(stdout, /--ttl <time> [^(]*\(default: 10s\)/);
  assert.match(stdout, /--grace <time> [^(]*\(default: 10s\)/);
});

test('it waits for as long as it takes, in the wait queue, and then runs', async () => {
  const lock = await locks.acquire('line');
  const running = new Running(['run', 'line', '--wait', 'forever', '--', 'echo', 'ran'], env);
  await until(
    async () => (await locks.query()).pending.length === 1,
    'its position in the wait queue',
  );
  await lock.release();
  const { code, stdout } = await running.ended;
  assert.deepEqual([code, stdout], [0, 'ran\n']);
});

for (const signal of ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'] as const) {
  test(`${signal} ends the wait`, async () => {
    await using _ = await locks.acquire('waited');
    const running = new Running(['run', 'waited', '--', 'echo', 'ran'], env);
    await until(
      async () => (await locks.query()).pending.length === 1,
      'its position in the wait queue',
    );
    running.child.kill(signal);
    const { code, stdout, stderr } = await running.ended;
    const number = { SIGINT: 2, SIGQUIT: 3, SIGTERM: 15, SIGHUP: 1 }[signal];
    assert.deepEqual([code, stdout, stderr], [128 + number, '', '']);
    await until(async () => (await locks.query()).pending.length === 0, 'its place to be given up');
  });

  test(`${signal} is passed on to the command and to what it has started`, async () => {
    const name = signal.slice(3);
    // The shell inside is another process of the same group.
    const inner = `trap "echo inner; exit 1" ${name}; echo ready; while :; do sleep 0.02; done`;
    const outer = `trap "echo outer; exit 5" ${name}; sh -c '${inner}'; exit 6`;
    const running = new Running(['run', 'passed', '--', 'sh', '-c', outer], env);
    await running.says('ready');
    running.child.kill(signal);
    const { code, stdout } = await running.ended;
    assert.deepEqual([code, stdout], [5, 'ready\ninner\nouter\n']);
  });
}

test('several may hold it together, as many as --limit says', async () => {
  const share = ['run', 'share', '--mode', 'shared', '--limit', '2'];
  const script = 'echo in; while [ ! -e "$1" ]; do sleep 0.02; done';
  const words = ['--', 'sh', '-c', script, 'sh', join(folder, 'done')];
  const both = [1, 2].map(() => new Running([...share, ...words], env));
  await Promise.all(both.map((each) => each.says('in')));
  await ends(75, env, ...share, '--if-available', '--', 'true');
  writeFileSync(join(folder, 'done'), '');
  for (const { code } of await Promise.all(both.map((each) => each.ended))) assert.equal(code, 0);
});

test('one may count as several, as many as --permits says', async () => {
  const share = ['run', 'share', '--mode', 'shared', '--limit', '3', '--permits', '2'];
  const script = 'echo in; while [ ! -e "$1" ]; do sleep 0.02; done';
  const words = ['--', 'sh', '-c', script, 'sh', join(folder, 'over')];
  const running = new Running([...share, ...words], env);
  await running.says('in');
  await ends(75, env, ...share, '--if-available', '--', 'true');
  const one = await locks.tryAcquire('share', { mode: 'shared', limit: 3 });
  assert.equal(await one?.release(), true);
  writeFileSync(join(folder, 'over'), '');
  assert.equal((await running.ended).code, 0);
});

test('--limit and --permits take the largest whole number', async () => {
  const most = `${Number.MAX_SAFE_INTEGER}`;
  const words = ['run', 'share', '--mode', 'shared', '--limit', most, '--permits', most];
  await ends(0, env, ...words, '--', 'true');
  words[5] = `${2 ** 53}`;
  const { stderr } = await ends(64, env, ...words, '--', 'true');
  assert.match(stderr, new RegExp(`from 1 to ${most}`));
});

test('it is found by host and process unless a label says otherwise', async () => {
  const running = new Running(['run', 'label', '--', 'sh', '-c', 'echo in; sleep 0.3'], env);
  await running.says('in');
  const { held } = await locks.query();
  assert.match(held[0]?.token ?? '', new RegExp(`\\.${running.child.pid}$`));
  await running.ended;
});
