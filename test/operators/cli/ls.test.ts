/** `holdfast ls`, `show`, `release` and `watch` without a terminal: their output, and their JSON. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { afterEach, beforeEach, test } from 'node:test';
import { promisify } from 'node:util';
import type { HeldLockInfo, PendingLockInfo } from 'holdfast';
import { connect, type LockManager } from '../../support/holdfast.js';
import { enrol, leastRights } from '../../support/least-rights.js';
import { RedisServer } from '../../support/server.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { ends, environment, MAIN, Running } from './support.js';

let locks: LockManager;
let others: LockManager;
let env: NodeJS.ProcessEnv;

const server = serverOfFile({}, () => {
  env = environment(server);
});

beforeEach(async () => {
  locks = await connect(server.url);
  others = await connect(server.url, { label: 'web-2' });
});

afterEach(async () => {
  await Promise.all([locks.close(), others.close()]);
  await server.admin.flushall();
});

/** A waiter until the end of the test. */
async function queue(name: string): Promise<void> {
  others.acquire(name, { wait: 60_000 }).catch(() => {});
  await until(async () => (await locks.query()).pending.length > 0, 'a queue entry');
}

test('ls tells each lock with its holder, lease and line, and a share with its fence if the server knows it', async () => {
  await locks.acquire('item:1', { label: 'web-1', ttl: 60_000 });
  const SHARE = { mode: 'shared', ttl: 60_000, label: '' } as const;
  await locks.acquire('item:2', SHARE);
  const first = await others.acquire('item:3', SHARE);
  const second = await locks.acquire('item:3', SHARE);
  await first.release();
  await queue('item:1');
  const { stdout } = await ends(0, env, 'ls');
  const [heads, whole = '', lone = '', joined = ''] = stdout.split('\n');
  assert.equal(
    heads?.replace(/ +/g, ' '),
    'NAME MODE HOLDER FENCE HELD LEASE WAITING WAITED WAITERS',
  );
  assert.match(
    whole,
    /^item:1 +exclusive +web-1 +≤ \d+(ms|\.\ds) +\d+\.\ds +1 +\d+(ms|\.\ds) +web-2$/,
  );
  const short = locks.clientId.slice(-8);
  const times = '≤ \\d+(ms|\\.\\ds) +(\\d+\\.\\ds|1m00s)$';
  assert.match(lone, new RegExp(`^item:2 +shared +${short} +${times}`));
  assert.match(joined, new RegExp(`^item:3 +shared +${short} +${second.fence} +${times}`));
});

/** What a terminal obeys, or shows in another order than it is written in. */
const ODD = '\x1b]0;title\x07\x1b[2J\r\u009b31m\u202eabc';
// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for them.
const OBEYED = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/;

test('what others have written reaches no terminal as it is', async () => {
  await server.admin.set('lock:a', `hf1.c${ODD}.1.label${ODD}`, 'PX', 60_000);
  await server.admin.set(`lock:b${ODD}`, `hf1.c.1.label${ODD}`, 'PX', 60_000);
  const watching = new Running(['watch', '--interval', '20ms'], env);
  await watching.says(/label/);
  watching.child.kill('SIGINT');
  const outputs = await Promise.all([
    ends(0, env, 'ls'),
    ends(0, env, 'ls', '--json'),
    ends(0, env, 'show', 'a'),
    ends(0, env, 'show', 'a', '--json'),
    ends(75, env, 'run', 'a', '--wait', '50ms', '--', 'true'),
    ends(75, env, 'run', 'a', '--wait', '50ms', '--json', '--', 'true'),
    watching.ended,
  ]);
  const released = await ends(0, env, 'release', 'a', '--yes', '--json');
  for (const { stdout, stderr } of [...outputs, released]) {
    assert.match(stdout + stderr, /label/);
    assert.doesNotMatch(stdout + stderr, OBEYED);
  }
  const label = JSON.parse(outputs[1]?.stdout ?? '').locks[0].holders[0].label;
  assert.equal(label, `label${ODD}`, 'JSON has the text itself');
  await server.admin.set('lock:a', `hf1.c.1.label${ODD}`, 'PX', 60_000);
  const error = await locks.acquire('a', { wait: 20 }).catch((caught) => caught);
  assert.match(error.message, /label/);
  assert.doesNotMatch(error.message, OBEYED);
});

test('ls --sort puts what is waited for most, or longest, first', async () => {
  for (const name of ['a', 'b', 'c']) await locks.acquire(name, { ttl: 60_000 });
  await queue('b');
  await using third = await connect(server.url, { label: 'web-3' });
  const waiting = third.acquire('c', { wait: 60_000 }).catch(() => {});
  others.acquire('c', { wait: 60_000 }).catch(() => {});
  await until(async () => (await locks.query()).pending.length === 3, 'the queue entries');
  const names = async (by: string) => {
    const { stdout } = await ends(0, env, 'ls', '--sort', by, '--json');
    return JSON.parse(stdout).locks.map(({ name }: { name: string }) => name);
  };
  assert.deepEqual(await names('name'), ['a', 'b', 'c']);
  assert.deepEqual(await names('waiters'), ['c', 'b', 'a']);
  assert.deepEqual(await names('wait'), ['b', 'c', 'a']);
  await third.close();
  await waiting;
});

test('ls --sort age puts first what was asked for first, and show tells when', async () => {
  for (const name of ['b', 'c', 'a']) {
    await locks.acquire(name, { ttl: 60_000 });
    // The times have whole ms.
    const now = Date.now();
    await until(async () => Date.now() > now, 'the next ms');
  }
  // A token that its caller has chosen tells nothing.
  await server.admin.set('lock:d', 'hf1.c.1', 'PX', 60_000);
  const { stdout } = await ends(0, env, 'ls', '--sort', 'age', '--json');
  const told = JSON.parse(stdout).locks;
  assert.deepEqual(
    told.map(({ name }: { name: string }) => name),
    ['b', 'c', 'a', 'd'],
  );
  assert.equal(told[3].holders[0].askedAt, null);
  assert.match((await ends(0, env, 'ls', 'd')).stdout, /^d +exclusive +c +(1m00s|\d\d\.\ds)$/m);
  // Of a machine whose clock is far ahead.
  const time = Date.UTC(2100, 0).toString(16).padStart(12, '0');
  const ahead = `hf1.${time}70008${'0'.repeat(15)}.1.late`;
  await server.admin.set('lock:e', ahead, 'PX', 60_000);
  assert.match((await ends(0, env, 'ls', 'e')).stdout, /^e +exclusive +late +≤ 0ms /m);
  const shown = (await ends(0, env, 'show', 'b')).stdout;
  assert.match(shown, /^HOLDER +CLIENT +FENCE +ASKED +HELD +LEASE$/m);
  assert.match(shown, /^\S+ +\w{32} +\d\d:\d\d:\d\d +≤ \d+(ms|\.\ds) +/m);
});

test('ls --json is whole, also for a reader who takes its time', async () => {
  const names = Array.from({ length: 1_000 }, (_, i) => `${'x'.repeat(100)}${i}`);
  await Promise.all(names.map((name) => locks.acquire(name, { ttl: 60_000 })));
  // More than a pipe holds.
  const reader = `setTimeout(() => process.stdin.pipe(process.stdout), 300)`;
  const pipe = `"$0" "$1" ls --json | "$0" -e '${reader}'`;
  const { stdout } = await promisify(execFile)('sh', ['-c', pipe, process.execPath, MAIN], {
    env,
    maxBuffer: 2 ** 24,
  });
  assert.equal(JSON.parse(stdout).locks.length, names.length);
});

test('ls --json is one document of a stable shape', async () => {
  const lock = await locks.acquire('item:1', { label: 'web-1', ttl: 60_000 });
  await queue('item:1');
  const { stdout } = await ends(0, env, 'ls', '--json');
  const { locks: told, ...rest } = JSON.parse(stdout);
  assert.deepEqual(rest, {});
  const lease = told[0].holders[0].lease;
  assert.ok(lease > 0 && lease <= 60_000);
  const { askedAt } = told[0].holders[0];
  assert.equal(new Date(askedAt).toISOString(), askedAt);
  const { waited } = told[0].waiters[0];
  assert.ok(Number.isInteger(waited));
  const waiter = { label: 'web-2', clientId: others.clientId, mode: 'exclusive', permits: 1 };
  const holder = { label: 'web-1', clientId: locks.clientId, permits: 1 };
  assert.deepEqual(told, [
    {
      name: 'item:1',
      kind: 'lock',
      mode: 'exclusive',
      limit: null,
      holders: [{ state: 'held', result: false, ...holder, askedAt, fence: null, lease }],
      waiters: [{ ...waiter, position: 1, waited }],
    },
  ]);
  assert.ok(!stdout.includes(lock.token), 'a reader of the token could take the lock');
});

test('ls --json has the fences of those who share a lock, but of who took it free', async () => {
  const options = { mode: 'shared', ttl: 60_000 } as const;
  const shares = [await locks.acquire('item:1', options), await others.acquire('item:1', options)];
  const { stdout } = await ends(0, env, 'ls', '--json');
  const [{ holders }] = JSON.parse(stdout).locks;
  assert.deepEqual(
    holders.map(({ fence }: { fence: number | null }) => fence),
    [null, shares[1]?.fence],
  );
  assert.ok(shares.every(({ token }) => !stdout.includes(token)));
});

test('ls and show tell how many permits of a semaphore are held', async () => {
  const options = { mode: 'shared', limit: 10, ttl: 60_000 } as const;
  await locks.acquire('api', { ...options, permits: 3 });
  await others.acquire('api', options);
  assert.match((await ends(0, env, 'ls')).stdout, /^api +shared, 4 of 10 +/m);
  assert.match(
    (await ends(0, env, 'show', 'api')).stdout,
    /^Lock "api" is held, shared, 4 of 10\.$/m,
  );
  const { limit, holders } = JSON.parse((await ends(0, env, 'show', 'api', '--json')).stdout);
  assert.equal(limit, 10);
  assert.deepEqual(
    holders.map(({ permits }: HeldLockInfo) => permits),
    [3, 1],
  );
});

test('show has a line for each waiter of a semaphore, also of one process', async () => {
  const share = { mode: 'shared', limit: 2, ttl: 60_000, wait: 60_000 } as const;
  await locks.acquire('api', { ...share, permits: 2 });
  for (const label of ['one', 'another']) {
    others.acquire('api', { ...share, label }).catch(() => {});
    const waits = async () => (await locks.query({ name: 'api' })).pending;
    await until(async () => (await waits()).some((each) => each.label === label), label);
  }
  const { waiters } = JSON.parse((await ends(0, env, 'show', 'api', '--json')).stdout);
  assert.deepEqual(
    waiters.map(({ label, permits, position }: PendingLockInfo) => [position, label, permits]),
    [
      [1, 'one', 1],
      [2, 'another', 1],
    ],
  );
  const { stdout } = await ends(0, env, 'show', 'api');
  assert.match(stdout, /^1 +\S+ +shared +1 +one .*\n2 +\S+ +shared +1 +another /m);
});

test('ls narrows by a pattern: * for any text, ? for one character, all else for itself', async () => {
  for (const name of ['a:1', 'a:12', 'a.1', 'b:1', '(a)+', 'ä:1']) await locks.acquire(name);
  const names = async (pattern: string) => {
    const { stdout } = await ends(0, env, 'ls', pattern, '--json');
    return JSON.parse(stdout).locks.map(({ name }: { name: string }) => name);
  };
  assert.deepEqual(await names('a:*'), ['a:1', 'a:12']);
  assert.deepEqual(await names('?:1'), ['a:1', 'b:1', 'ä:1']);
  assert.deepEqual(await names('*1'), ['a.1', 'a:1', 'b:1', 'ä:1']);
  assert.deepEqual(await names('a.1'), ['a.1']);
  assert.deepEqual(await names('(a)+'), ['(a)+']);
  const { stdout } = await ends(0, env, 'ls', 'nothing*');
  assert.equal(stdout, 'No lock is held or waited for.\n');
});

test('--prefix and the database of the URL are those of connect', async () => {
  const elsewhere = await connect(`${server.url}/3`, { prefix: 'app:' });
  await elsewhere.acquire('there');
  const args = ['--url', `${server.url}/3`, '--prefix', 'app:', '--json'];
  const { stdout } = await ends(0, env, 'ls', ...args);
  assert.equal(JSON.parse(stdout).locks[0].name, 'there');
  await server.admin.call('SELECT', '3');
  await server.admin.set('app:foreign', 'x', 'PX', 60_000);
  await server.admin.call('SELECT', '0');
  const foreign = await ends(0, env, 'show', 'foreign', ...args);
  assert.ok(JSON.parse(foreign.stdout).foreign.lease > 0);
  await elsewhere.close();
});

test('a name cannot write to the terminal', async () => {
  await locks.acquire('evil\x1b[2J\u202e\n');
  const { stdout } = await ends(0, env, 'ls');
  assert.match(stdout, /evil\\u\{1b\}\[2J\\u\{202e\}\\u\{a\} /);
});

test('show tells one lock, and 1 if nobody holds it', async () => {
  await locks.acquire('item:*', { label: 'web-1', ttl: 60_000 });
  await locks.acquire('item:1');
  await queue('item:*');
  const { stdout } = await ends(0, env, 'show', 'item:*');
  assert.match(
    stdout,
    /^Lock "item:\*" is held, exclusive\.\n\nHOLDER .*\nweb-1 .*\n\nPOSITION .*\n1 +\S+ +exclusive +web-2 .*\n$/,
  );
  const json = JSON.parse((await ends(0, env, 'show', 'item:*', '--json')).stdout);
  assert.deepEqual(Object.keys(json), [
    'name',
    'kind',
    'mode',
    'limit',
    'holders',
    'waiters',
    'foreign',
  ]);
  assert.deepEqual([json.name, json.foreign, json.waiters.length], ['item:*', null, 1]);
  const nobody = await ends(1, env, 'show', 'item:');
  assert.equal(nobody.stdout, 'Lock "item:" is held by nobody.\n');
  const empty = {
    name: 'item:',
    kind: 'lock',
    mode: null,
    limit: null,
    holders: [],
    waiters: [],
    foreign: null,
  };
  assert.deepEqual(JSON.parse((await ends(1, env, 'show', 'item:', '--json')).stdout), empty);
});

test('show tells of other code', async () => {
  await server.admin.set('lock:old', 'somebody', 'PX', 60_000);
  const { stdout } = await ends(0, env, 'show', 'old');
  assert.match(stdout, /^Lock "old" is held by other code for (\d+\.\ds|1m00s) more\.\n$/);
  await server.admin.set('lock:old', 'somebody');
  const forever = await ends(0, env, 'show', 'old');
  assert.match(forever.stdout, /by other code without an end to its lease/);
});

test('show does not say that nobody has a lock that it may not look at', async () => {
  const user = { ...leastRights('query'), name: 'blind' };
  // The probe of a connection tries PTTL on another key.
  const rules = [...user.rules, '-pttl', '(+pttl ~holdfast:probe)'];
  const url = await enrol(server, { ...user, rules });
  const { stderr } = await ends(69, env, 'show', 'old', '--url', url);
  assert.match(stderr, /^holdfast: cannot tell whether other code holds lock "old" .*NOPERM/);
});

const DAY_MS = 86_400_000;

test('a slot that is done is told as that, and its release says that the job may run again', async () => {
  const once = { slot: 'may', keep: '1h', keepResult: true } as const;
  await locks.runOnce('bill', once, () => ({ sum: 7 }));
  await others.runOnce('mail', { slot: 'may', keep: '1h' }, () => 'not kept');
  const { held } = await locks.query();
  assert.deepEqual(
    held.map(({ name, state, result }) => [name, state, result]),
    [
      ['once:bill@may', 'done', true],
      ['once:mail@may', 'done', false],
    ],
  );
  const { stdout } = await ends(0, env, 'ls');
  assert.match(stdout, /^once:bill@may +done +\S+ \(result kept\) +(1h00m|59m\d\ds)$/m);
  assert.match(stdout, /^once:mail@may +done +web-2 +(1h00m|59m\d\ds)$/m);
  await locks.runOnce('year', { ...once, keep: '10d' }, () => ({ sum: 7 }));
  const shown = await ends(0, env, 'show', 'once:year@may');
  const told = /^Lock "once:year@may" marks a slot that is done until (\S+ \S+), with its result: /;
  const left = Date.parse(told.exec(shown.stdout)?.[1] ?? '') - Date.now();
  assert.ok(left > 9.9 * DAY_MS && left <= 10 * DAY_MS, shown.stdout);
  const json = JSON.parse((await ends(0, env, 'show', 'once:mail@may', '--json')).stdout);
  assert.deepEqual([json.holders[0].state, json.holders[0].result], ['done', false]);
  const watching = new Running(['watch', '--interval', '20ms'], env);
  await watching.says(/once:mail@may: done, by web-2$/m);
  watching.child.kill('SIGINT');
  await watching.ended;
  const refused = await ends(1, env, 'release', 'once:mail@may', '--yes');
  assert.equal(refused.stdout, '');
  const document = await ends(1, env, 'release', 'once:mail@may', '--yes', '--json');
  assert.deepEqual(JSON.parse(document.stdout), {
    name: 'once:mail@may',
    released: false,
    holders: [],
  });
  assert.match(refused.stderr, /marks a slot that is done: add --done .* its job may run again/);
  assert.equal((await locks.query({ name: 'once:mail@may' })).held.length, 1);
  await ends(0, env, 'release', 'once:mail@may', '--yes', '--done');
  assert.equal((await others.runOnce('mail', { slot: 'may' }, () => 1)).ran, true);
});

test('a slot whose body runs is held, and not done before the body with retry has ended', async () => {
  const stateOf = async () => (await others.query({ name: 'once:bill@may' })).held[0]?.state;
  await locks.runOnce('bill', { slot: 'may', retry: true }, async () => {
    assert.equal(await stateOf(), 'held');
  });
  assert.equal(await stateOf(), 'done');
});

test('release frees a lock, and hands it to the next waiter', async () => {
  await locks.acquire('job', { label: 'web-1' });
  await queue('job');
  const { stdout } = await ends(0, env, 'release', 'job', '--yes', '--json');
  const { name, released, holders } = JSON.parse(stdout);
  assert.deepEqual([name, released, holders[0].label], ['job', true, 'web-1']);
  const next = async () => (await locks.query()).held[0]?.clientId === others.clientId;
  await until(next, 'the next waiter to have it');
});

test('release is refused without --yes where nobody can be asked', async () => {
  await locks.acquire('job');
  const unasked = await ends(64, env, 'release', 'job');
  assert.match(unasked.stderr, /there is no terminal to ask on: add --yes/);
  assert.equal((await locks.query()).held.length, 1);
});

test('release says 1 where there is nothing to release, and leaves other code alone unless told', async () => {
  const nobody = await ends(1, env, 'release', 'job', '--yes');
  assert.equal(nobody.stdout, 'Lock "job" is held by nobody.\n');
  const json = await ends(1, env, 'release', 'job', '--yes', '--json');
  assert.deepEqual(JSON.parse(json.stdout), { name: 'job', released: false, holders: [] });
  await server.admin.set('lock:job', 'somebody');
  const foreign = await ends(1, env, 'release', 'job', '--yes');
  assert.match(foreign.stdout, /held by other code: add --foreign/);
  await ends(0, env, 'release', 'job', '--yes', '--foreign');
  assert.equal(await server.admin.exists('lock:job'), 0);
});

test('watch without a terminal writes a line for each change, until a signal', async () => {
  const running = new Running(['watch', 'job*', '--interval', '20ms'], env);
  const lock = await locks.acquire('job', { label: 'web-1' });
  await running.says(/^\d{4}-\S+Z job: held, exclusive, by web-1\n/m);
  await queue('job');
  await running.says(/^\S+ job: held, exclusive, by web-1, 1 waiting\n/m);
  await lock.release();
  await others.close();
  await running.says(/^\S+ job: free\n/m);
  await locks.acquire('job', { label: 'web-1', mode: 'shared' });
  await running.says(/^\S+ job: held, shared, by web-1\n/m);
  const { fence } = await locks.acquire('job', { label: 'web-2', mode: 'shared' });
  await running.says(new RegExp(`^\\S+ job: held, shared, .*\\(fence ${fence}\\)`, 'm'));
  running.child.kill('SIGTERM');
  const { code, stderr } = await running.ended;
  assert.deepEqual([code, stderr], [0, '']);
});

test('watch --json writes a document per line, and goes on when the server was away', async () => {
  const own = await RedisServer.start();
  try {
    const running = new Running(['watch', '--interval', '20ms', '--json'], environment(own));
    const holder = await connect(own.url);
    const lock = await holder.acquire('job');
    await running.says('"exclusive"');
    // Another owner, though it looks the same.
    await lock.release();
    await holder.acquire('job');
    await until(async () => running.stdout.split('"exclusive"').length > 2, 'the new owner');
    await own.restart();
    await holder.close();
    await running.says('"mode":null');
    running.child.kill('SIGINT');
    const { code, stdout } = await running.ended;
    assert.equal(code, 0);
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(Object.keys(lines[0]), ['time', 'lock']);
    assert.equal(lines[0].lock.holders[0].clientId, holder.clientId);
    // A reader of the token could take the lock.
    assert.doesNotMatch(stdout, /hf1\./);
  } finally {
    await own.stop();
  }
});

test('watch says once per outage why it sees nothing, and follows when the server is back', async () => {
  const own = await RedisServer.start();
  await using holder = await connect(own.url);
  const running = new Running(['watch', '--interval', '20ms'], environment(own));
  const said = () => running.stderr.split('\n').filter((line) => line !== '');
  try {
    await holder.acquire('job', { label: 'web-1' });
    await running.says('job: held');
    for (const label of ['web-2', 'web-3']) {
      const before = said().length;
      await own.kill();
      await until(() => said().length > before, 'the reason');
      await own.start();
      await own.admin.set('lock:job', `hf1.c.1.${label}`, 'PX', 60_000);
      await running.says(`by ${label}`);
      const reasons = said().slice(before);
      assert.deepEqual(reasons, [...new Set(reasons)], 'no reason is told twice');
      for (const line of reasons) assert.match(line, /^holdfast: \S/);
    }
  } finally {
    running.child.kill('SIGINT');
    await running.ended;
    await own.stop();
  }
});

test('69 with the reason as a document if there is no server', async () => {
  const nowhere = environment(undefined, { REDIS_URL: 'redis://127.0.0.1:1' });
  for (const args of [['ls'], ['show', 'a'], ['watch'], ['release', 'a', '--yes']]) {
    const { stdout, stderr } = await ends(69, nowhere, ...args, '--json');
    assert.equal(stdout, '');
    assert.equal(JSON.parse(stderr).error.code, 'ERR_LOCK_CONNECTION');
  }
});

test('watch looks neither without a pause nor beyond what a timer can wait', async () => {
  for (const interval of ['0ms', '25h']) {
    const { stderr } = await ends(64, env, 'watch', '--interval', interval);
    assert.match(stderr, /10ms .* 24h/);
  }
});
