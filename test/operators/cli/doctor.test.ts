/** `holdfast doctor`: its findings on servers that are fit for locks, and on those that are not. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { enrol, leastRights } from '../../support/least-rights.js';
import { RestrictedServer } from '../../support/restricted.js';
import { Sentinels } from '../../support/sentinels.js';
import { RedisServer } from '../../support/server.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';
import { ends, environment } from './support.js';

interface Finding {
  readonly server: string | null;
  readonly check: string;
  readonly level: string;
  readonly message: string;
  readonly advice?: string;
}

const server = serverOfFile({ persistent: true });

/** Its findings; they decide the exit code: 1 if something must be fixed. */
async function findings(code: 0 | 1, ...args: readonly string[]): Promise<Finding[]> {
  const { stdout } = await ends(code, environment(), 'doctor', '--json', ...args);
  const { ok, findings, ...rest } = JSON.parse(stdout);
  assert.deepEqual([ok, rest], [code === 0, {}]);
  return findings;
}

/** The findings that are not `ok`. */
function complaints(all: readonly Finding[]): string[][] {
  return all
    .filter(({ level }) => level !== 'ok')
    .map(({ check, level, message }) => [level, check, message]);
}

test('a server that is fit for locks is told so, check by check', async () => {
  const { stdout } = await ends(0, environment(server), 'doctor');
  assert.doesNotMatch(stdout, /undefined|→ *$/m, 'a finding without an advice is one line');
  for (const [check, message] of [
    ['round trip', 'a round trip takes \\d+\\.\\d\\d ms'],
    ['version', '(Redis|Valkey) \\d+\\.\\d+'],
    ['role', 'it is a primary'],
    ['memory', 'it evicts nothing'],
    ['persistence', 'appendonly yes, appendfsync always'],
    ['clock', "its clock is \\d+(\\.\\d)? ms (behind|ahead of) this machine's"],
    ['replicas', '0 replicas'],
    ['rights', 'the user default may do all that is needed'],
    [
      'abilities',
      'RESP3, clock in scripts, messages, plain commands, tracking, compare-and-delete by \\S+$',
    ],
    ['trial', 'a lock was acquired and extended in \\d+\\.\\d\\d ms, waited for, and released'],
  ]) {
    assert.match(stdout, new RegExp(`^  ok +${check} +${message}`, 'm'));
  }
  assert.match(stdout, /\nFit for locks\.\n$/);
  const [, ...parts] = stdout.split('\n\n').map((part) => part.split('\n')[0]);
  assert.deepEqual(parts.slice(0, 2), [`127.0.0.1:${server.port}`, 'All together']);
});

test('it leaves nothing but the fence counter', async () => {
  assert.deepEqual(await server.keyspace(), { 'holdfast:fence': { type: 'string', ttl: -1 } });
});

test('the findings are of a stable shape', async () => {
  const all = await findings(0, '--url', server.url);
  assert.deepEqual(complaints(all), []);
  const [first] = all;
  assert.deepEqual(Object.keys(first ?? {}), ['server', 'check', 'level', 'message']);
  assert.equal(first?.server, `127.0.0.1:${server.port}`);
  assert.equal(all.at(-1)?.server, null);
});

test('eviction must be fixed as soon as memory has a limit, and is warned of before', async () => {
  const own = await RedisServer.start({ persistent: true });
  try {
    await own.admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const [policy] = complaints(await findings(0, '--url', own.url));
    const unlimited =
      'maxmemory-policy is allkeys-lru, which evicts nothing as long as maxmemory is 0';
    assert.deepEqual(policy, ['warning', 'memory', unlimited]);
    await own.admin.config('SET', 'maxmemory', '1gb');
    const [first] = complaints(await findings(1, '--url', own.url));
    assert.deepEqual(first?.slice(0, 2), ['problem', 'memory']);
    const { stdout } = await ends(1, environment(own), 'doctor');
    assert.match(stdout, /→ set maxmemory-policy to noeviction/);
    const lines = stdout.split('\n');
    const columnOf = (word: string) => lines.find((line) => line.includes(word))?.indexOf(word);
    assert.equal(columnOf('→'), columnOf('maxmemory-policy is'), 'advice is below its finding');
    assert.match(stdout, /\n1 to fix, \d to consider\.\n$/);
  } finally {
    await own.stop();
  }
});

test('memory that is nearly full is warned of, and full memory must be fixed', async () => {
  const own = await RedisServer.start({ persistent: true });
  try {
    await own.admin.setrange('ballast', 50_000_000, 'x');
    const used = Number(/used_memory:(\d+)/.exec(await own.admin.info('memory'))?.[1]);
    await own.admin.config('SET', 'maxmemory', String(Math.round(used / 0.95)));
    const [nearly] = complaints(await findings(0, '--url', own.url));
    assert.deepEqual(nearly?.slice(0, 2), ['warning', 'memory']);
    await own.admin.config('SET', 'maxmemory', String(Math.round(used / 2)));
    const full = complaints(await findings(1, '--url', own.url));
    assert.match(full.at(-1)?.join(' ') ?? '', /^problem trial .* OOM /);
  } finally {
    await own.stop();
  }
});

test('a server that forgets is warned of, and a replica must be fixed', async () => {
  const replica = await RedisServer.start();
  try {
    const forgets = complaints(await findings(0, '--url', replica.url));
    assert.deepEqual(forgets, [
      [
        'warning',
        'persistence',
        'appendonly no: a restart forgets locks, which other clients then get',
      ],
    ]);
    await replica.admin.replicaof('127.0.0.1', server.port);
    const following = async () => /master_link_status:up/.test(await replica.admin.info());
    await until(following, 'the replica to follow');
    const [problem] = complaints(await findings(1, '--url', replica.url));
    const message = `it is a replica of 127.0.0.1:${server.port}`;
    assert.deepEqual(problem, ['problem', 'role', message]);
    const primary = await findings(0, '--url', server.url);
    assert.ok(primary.some(({ message }) => message === '1 replica'));
  } finally {
    await replica.stop();
  }
});

/** Whether the user may ask for its rights. */
for (const asks of [true, false]) {
  const how = asks ? 'asked for' : 'tried';
  test(`each right that is missing is named when it is ${how}`, async () => {
    const user = { ...leastRights('query'), name: asks ? 'asks' : 'tries' };
    const rules = asks ? [...user.rules, '+acl|dryrun'] : user.rules;
    const url = await enrol(server, { ...user, rules });
    assert.deepEqual(complaints(await findings(0, '--url', url)), []);
    const rights = user.rules.filter((rule) => /^\+(?!client|info|pubsub|subscribe)/.test(rule));
    assert.ok(rights.length > 20);
    for (const right of rights.map((rule) => rule.slice(1))) {
      await server.admin.call('ACL', 'SETUSER', user.name, `-${right}`);
      const { stdout } = await ends(
        OPTIONAL.includes(right) ? 0 : 1,
        environment(),
        'doctor',
        '--json',
        '--url',
        url,
      );
      const all: Finding[] = JSON.parse(stdout).findings;
      const found = all.find((each) => each.check === 'rights');
      assert.equal(found?.level, OPTIONAL.includes(right) ? 'warning' : 'problem');
      assert.match(
        found?.advice ?? '',
        new RegExp(`^grant \\+${right} .*refused: ${right.toUpperCase()}\\b`),
      );
      await server.admin.call('ACL', 'SETUSER', user.name, `+${right}`);
    }
  });

  test(`a key that is out of bounds is named when it is ${how}`, async () => {
    const user = { ...leastRights('query'), name: asks ? 'asks' : 'tries' };
    const rules = asks ? [...user.rules, '+acl|dryrun'] : user.rules;
    const url = await enrol(server, { ...user, rules: [...rules, 'resetkeys', '~lock:*'] });
    const all = await findings(1, '--url', url);
    const advice = all.find(({ check }) => check === 'rights')?.advice ?? '';
    assert.match(advice, /^grant ~\{lock:\*\}:\* /);
    assert.match(advice, /HSET \{lock:NAME\}:queue/);
    assert.doesNotMatch(advice, / lock:NAME/);
  });
}

/** Without these there are locks. */
const OPTIONAL = ['mget', 'publish', 'scan'];

test('without the fence counter of all locks there are locks, with a warning', async () => {
  const user = { ...leastRights('query'), name: 'apart' };
  const rules = user.rules.filter((rule) => rule !== '~holdfast:*');
  const url = await enrol(server, { ...user, rules: [...rules, '+acl|dryrun'] });
  const all = (await findings(0, '--url', url)).filter(({ level }) => level !== 'ok');
  assert.deepEqual(
    all.map(({ level, check }) => [level, check]),
    [
      ['warning', 'rights'],
      ['warning', 'trial'],
    ],
  );
  const [rights] = all;
  assert.match(rights?.message ?? '', /may not use the common fence counter/);
  assert.match(
    rights?.advice ?? '',
    /^grant ~holdfast:\* .*refused: MGET holdfast:fence, GET holdfast:fence, SET /,
  );
});

test('what he tries changes nothing', async () => {
  const own = await RedisServer.start();
  try {
    const url = await enrol(own, { ...leastRights('query'), name: 'tries' });
    await findings(0, '--url', url);
    const { 'holdfast:fence': counter, ...rest } = await own.keyspace();
    assert.deepEqual(rest, {});
    const value = Number(await own.admin.get('holdfast:fence'));
    assert.ok(counter?.type === 'string' && Math.abs(value - Date.now() * 1_000) < 60_000_000);
  } finally {
    await own.stop();
  }
});

test('without messages waiters poll, which is a warning', async () => {
  const user = { ...leastRights('query'), name: 'deaf' };
  const url = await enrol(server, { ...user, rules: [...user.rules, '-subscribe'] });
  const all = complaints(await findings(0, '--url', url));
  assert.deepEqual(
    all.map(([level, check]) => [level, check]),
    [['warning', 'trial']],
  );
});

test('all rights that are missing are listed at once, also those behind which nothing else works', async () => {
  for (const asks of [true, false]) {
    const user = { ...leastRights('query'), name: 'poor' };
    const without = ['-time', '-pexpire', '-publish', '-subscribe', '-scan', '-mget'];
    const rules = [...user.rules, ...(asks ? ['+acl|dryrun'] : []), ...without];
    const url = await enrol(server, { ...user, rules });
    const found = (await findings(1, '--url', url)).filter(({ check }) => check === 'rights');
    assert.deepEqual(
      found.map(({ level }) => level),
      ['problem', 'warning', 'warning', 'warning'],
    );
    const advice = found.map((each) => each.advice ?? '');
    assert.match(advice[0] ?? '', /^grant \+time \+pexpire/);
    assert.match(advice.join(' '), /grant \+mget .*grant \+publish .*grant \+scan /);
    assert.match(advice.join(' '), /SUBSCRIBE/);
    await server.admin.call('ACL', 'DELUSER', user.name);
  }
});

test('Garnet runs scripts at one go only with an option, and Kvrocks is no Redis 4', async () => {
  for (const [name, expected] of [
    ['the name Garnet', /^warning Garnet 2\.1\.5, .*--lua --lua-transaction-mode/],
    ['the name Kvrocks', /^ok Kvrocks 2\.14\.0 $/],
  ] as const) {
    const proxy = await RestrictedServer.start(server.port, name);
    const found = (await findings(0, '--url', proxy.url)).find(({ check }) => check === 'version');
    await proxy.stop();
    assert.match(`${found?.level} ${found?.message} ${found?.advice ?? ''}`, expected);
  }
});

test('an active replica, as of KeyDB, must be fixed: two of them grant one lock', async () => {
  const proxy = await RestrictedServer.start(server.port, 'the role of an active replica');
  const found = (await findings(1, '--url', proxy.url)).filter(({ level }) => level !== 'ok');
  await proxy.stop();
  const [role] = found.filter(({ check }) => check === 'role');
  assert.match(`${role?.level} ${role?.message}`, /^problem it is an active replica .*may grant/);
  assert.match(role?.advice ?? '', /turn active replication off/);
  const [trial] = found.filter(({ check }) => check === 'trial');
  assert.match(`${trial?.level} ${trial?.message}`, /^warning redis:.* may grant a lock twice/);
});

test('an administrator may ask about another user, who need not log in', async () => {
  const user = { ...leastRights('query'), name: 'somebody' };
  const url = await enrol(server, user);
  const about = ['--acl-user', user.name];
  assert.deepEqual(complaints(await findings(0, '--url', server.url, ...about)), []);
  await server.admin.call('ACL', 'SETUSER', user.name, '-hset');
  const [problem] = complaints(await findings(1, '--url', server.url, ...about));
  assert.deepEqual(problem, ['problem', 'rights', 'the user somebody may not do what locks need']);
  await server.admin.call('ACL', 'SETUSER', user.name, '+hset');
  const [unknown] = complaints(await findings(0, '--url', url, '--acl-user', 'default'));
  assert.match(
    unknown?.join(' ') ?? '',
    /^warning rights the rights of the user default are not known: NOPERM/,
  );
});

test('a server that cannot be reached, or refuses the login, must be fixed; no password is shown', async () => {
  const closed = await findings(1, '--url', 'redis://user:s3cret@127.0.0.1:1');
  assert.deepEqual(closed[0]?.check, 'connection');
  assert.match(closed[0]?.message ?? '', /Connection refused/);
  const wrong = await findings(1, '--url', server.url.replace('//', '//nobody:s3cret@'));
  const [login, trial] = complaints(wrong);
  assert.match(login?.join(' ') ?? '', /^problem connection WRONGPASS /);
  assert.match(
    trial?.join(' ') ?? '',
    /^problem trial cannot connect .* WRONGPASS .*check username and password/,
  );
  assert.match(wrong[0]?.advice ?? '', /username and password/);
  assert.doesNotMatch(JSON.stringify([closed, wrong]), /s3cret/);
  const own = await RedisServer.start({ args: ['--requirepass', 'right'] });
  const none = complaints(await findings(1, '--url', own.url));
  await own.stop();
  assert.match(none[0]?.join(' ') ?? '', /^problem connection NOAUTH /);
});

test('a Cluster of which no server answers is a finding, and so are Sentinels', async () => {
  const nowhere = 'redis://127.0.0.1:1';
  for (const [option, ...more] of [['--cluster'], ['--sentinel', '--master', 'mymaster']]) {
    const all = await findings(1, option as string, nowhere, ...more);
    const [level, check, message = ''] = complaints(all)[0] ?? [];
    assert.deepEqual([level, check], ['problem', 'connection']);
    assert.match(message, new RegExp(`Connection refused .*; ${option} named it$`));
  }
});

test('a login that may not do what locks need is told at the trial too', async () => {
  const user = { ...leastRights(), name: 'no-eval' };
  const url = await enrol(server, { ...user, rules: [...user.rules, '-eval'] });
  const found = complaints(await findings(1, '--url', url));
  assert.ok(found.some(([, check]) => check === 'rights'));
  const trial = found.find(([, check]) => check === 'trial');
  assert.match(
    trial?.join(' ') ?? '',
    /^problem trial cannot connect .*grant it by ACL SETUSER no-eval \+eval/,
  );
});

test('a server that hangs is given up', async () => {
  const hung = await RedisServer.start();
  hung.pause();
  try {
    const [first] = await findings(1, '--url', hung.url);
    assert.match(first?.message ?? '', /no connection within 5000 ms/);
  } finally {
    await hung.stop();
  }
});

test('of a quorum each server is looked at, also one that is away or named twice', async () => {
  const servers = await RedisServer.startSeveral(3);
  try {
    const urls = servers.map(({ url }) => url);
    const quorum = (all: readonly string[]) => all.flatMap((url) => ['--quorum', url]);
    // Since these have just been started, none of them votes yet: that is the trial's to say.
    const twice = await findings(
      1,
      ...quorum([...urls, urls[0]?.replace('127.0.0.1', 'localhost') ?? '']),
    );
    assert.ok(twice.some(({ message }) => /the same server as another one/.test(message)));
    await servers[1]?.kill();
    const all = await findings(1, ...quorum(urls));
    const away = all.filter(({ level, check }) => level === 'problem' && check === 'connection');
    assert.deepEqual(
      away.map((each) => each.server),
      [`127.0.0.1:${servers[1]?.port}`],
    );
    await servers[2]?.kill();
    const two = await findings(1, ...quorum(urls));
    assert.ok(!two.some(({ message }) => /the same server/.test(message)), 'nobody knows');
  } finally {
    await Promise.all(servers.map((each) => each.stop()));
  }
});

test('of a Cluster each server that has slots is looked at', async () => {
  const cluster = await Cluster.start();
  try {
    const [url = ''] = cluster.urls;
    const all = await findings(0, '--cluster', url);
    const servers = new Set(all.flatMap(({ server }) => server ?? []));
    assert.ok(servers.size >= 3);
    assert.equal(all.filter(({ message }) => message === 'the Cluster is up').length, servers.size);
    const alone = complaints(await findings(1, '--url', url));
    assert.deepEqual(alone[0], ['problem', 'role', 'it is a server of a Cluster']);
  } finally {
    await cluster.stop();
  }
});

test('of Sentinels the master is looked at, and a Sentinel alone is no server', async () => {
  const deployment = await Sentinels.start();
  try {
    const urls = deployment.sentinels.map(({ url }) => url);
    const sentinels = urls.flatMap((url) => ['--sentinel', url]);
    const all = await findings(0, ...sentinels, '--master', deployment.name);
    assert.ok(all.some(({ message }) => message === '1 replica'));
    const alone = await findings(1, '--url', urls[0] ?? '');
    assert.match(JSON.stringify(alone), /use connect\({ sentinels/);
  } finally {
    await deployment.stop();
  }
});
