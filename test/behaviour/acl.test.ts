/**
 * The ACL rule of docs/operations.md is complete and minimal: without any one of its rights something
 * fails. The conformance suite shows that the rule suffices for everything.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { ClusterTarget } from 'holdfast';
import { ROOT } from '../support/child.js';
import { Cluster } from '../support/cluster.js';
import { untilQueued } from '../support/crew.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { commandsKnownTo, enrol, leastRights } from '../support/least-rights.js';
import { RedisServer, serverVersion } from '../support/server.js';
import { until } from '../support/wait.js';

const user = leastRights();

/** The rights that the rule grants; its other parts take rights away. */
const GIVEN = user.rules.filter((rule) => /^[~&+]/.test(rule));

/** The consequences that the page names of a lack of these rights; without any other right the user is refused. */
const DEGRADED: Readonly<Record<string, string>> = {
  '+client|setname': 'works, has no name, warns of WARN_LOCK_EVICTION',
  '+client|tracking': 'works, is called here, warns of WARN_LOCK_EVICTION, is told nothing',
  '+client|caching': 'works, is called here, warns of WARN_LOCK_EVICTION, is told nothing',
  '+info': 'works, is called here, warns of nothing',
  '+publish': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_POLLING',
  '+pubsub|numsub': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_POLLING',
  '+subscribe': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_POLLING',
  '&holdfast:*': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_POLLING',
  '+mget': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_SCRIPTS',
  '~holdfast:*': 'works, is called here, warns of WARN_LOCK_EVICTION and WARN_LOCK_SCRIPTS',
};

let server: RedisServer;

before(async () => {
  // A setting that causes a warning, for users who may read it.
  server = await RedisServer.start({ args: ['--maxmemory-policy', 'volatile-lru'] });
});

after(() => server.stop());

/** Two managers use one lock so that every command of a script occurs; answers the result. */
async function tryOut(rules: readonly string[]): Promise<string> {
  await server.admin.flushall();
  await server.admin.script('FLUSH');
  const url = await enrol(server, { ...user, rules });
  const opened: LockManager[] = [];
  const warnings = new Set<string>();
  const open = async (clientName: string) => {
    const manager = await connect(url, { clientName, commandTimeout: 500 });
    manager.on('warning', ({ code }) => warnings.add(code));
    opened.push(manager);
    return manager;
  };
  try {
    const [here, there] = [await open('here'), await open('there')];
    const named = /name=here /.test(String(await server.admin.client('LIST')));
    const lock = await here.acquire('a');
    assert.equal(await there.tryAcquire('a'), null);
    const waiting = there.acquire('a', { label: 'there' });
    await Promise.race([untilQueued(server, 'a', ['there']), waiting]);
    await lock.extend(60_000);
    assert.equal(await lock.release(), true);
    assert.equal(await (await waiting).release(), true);
    await share(here, there);
    await until(() => warnings.size > 0 || !rules.includes('+info'), 'the warnings');
    const told = [...warnings].sort().join(' and ') || 'nothing';
    const tells = here.stats().servers[0]?.tracking ? '' : ', is told nothing';
    return `works, ${named ? 'is called here' : 'has no name'}, warns of ${told}${tells}`;
  } catch (error) {
    const { code, serverCode } = error as { code?: string; serverCode?: string };
    return `${code} ${serverCode}`;
  } finally {
    await Promise.all(opened.map((manager) => manager.close()));
  }
}

/** The calls that need the commands of shared locks, and those of an operator. */
async function share(here: LockManager, there: LockManager): Promise<void> {
  const two = { mode: 'shared', limit: 2 } as const;
  const permits = [await here.acquire('a', two), await there.acquire('a', two)];
  const waiting = there.acquire('a', two);
  // It may be refused before the release has its answer.
  waiting.catch(() => {});
  await permits[0]?.release();
  await (await waiting).release();
  assert.equal(await there.forceRelease('a'), true);
}

/** The rights that the page adds for commands which not every server has. */
async function newCommands(): Promise<readonly string[]> {
  const own = await commandsKnownTo(server, 'client|setinfo', 'delex', 'delifeq', 'msetex');
  return own.flatMap((name) => leastRights(`+${name} `).rules.at(-1) ?? []);
}

test('with the whole rule everything works', async () => {
  const expected = 'works, is called here, warns of WARN_LOCK_EVICTION';
  await server.admin.call('ACL', 'LOG', 'RESET');
  assert.equal(await tryOut([...user.rules, ...(await newCommands())]), expected);
  // Nor does it try in vain: the ACL log of the server would show each time.
  assert.deepEqual(await server.admin.call('ACL', 'LOG'), []);
});

for (const given of GIVEN) {
  test(`without ${given} something is missed`, async () => {
    const expected = DEGRADED[given] ?? 'ERR_LOCK_SERVER NOPERM';
    assert.equal(await tryOut(user.rules.filter((rule) => rule !== given)), expected);
  });
}

test('without the common counter each lock has one of its own, which ends', async () => {
  await server.admin.flushall();
  const rules = user.rules.filter((rule) => rule !== '~holdfast:*');
  const manager = await connect(await enrol(server, { ...user, rules }));
  const warnings: Error[] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  let last = 0;
  for (const mode of ['exclusive', 'shared', 'exclusive'] as const) {
    const lock = await manager.acquire('a', { mode });
    assert.ok(lock.fence > last, `${lock.fence} after ${last}`);
    last = lock.fence;
    assert.equal(await lock.release(), true);
  }
  await manager.close();
  const { '{lock:a}:fence': counter, ...rest } = await server.keyspace();
  assert.ok(counter !== undefined && counter.ttl > 0 && counter.ttl <= 86_400_000);
  assert.deepEqual(Object.keys(rest), []);
  const scripts = warnings.filter(
    (each) => (each as { code?: string }).code === 'WARN_LOCK_SCRIPTS',
  );
  assert.equal(scripts.length, 1);
  assert.match(scripts[0]?.message ?? '', /NOPERM.*grant .* mget .* holdfast:\*/);
});

test('query needs what the page says', async () => {
  for (const [rules, allowed] of [
    [user.rules, false],
    [leastRights('for query').rules, true],
  ] as const) {
    const manager = await connect(await enrol(server, { ...user, rules }));
    manager.on('warning', () => {});
    const lock = await manager.acquire('a', { mode: 'shared' });
    if (allowed) assert.equal((await manager.query()).held.length, 1);
    else await assert.rejects(manager.query(), { serverCode: 'NOPERM' });
    await lock.release();
    await manager.close();
  }
});

test('another database and the option replicas need what the page says', async () => {
  for (const [purpose, right, options] of [
    ['for another database', '+select', {}],
    ['for the option replicas', '+wait', { replicas: 1 }],
  ] as const) {
    const path = right === '+select' ? '/1' : '';
    const less = await enrol(server, user);
    await assert.rejects(connect(less + path, options), { serverCode: 'NOPERM' });
    const { rules } = leastRights(purpose);
    assert.equal(rules.at(-1), right);
    const url = await enrol(server, { ...user, rules });
    const manager = await connect(url + path, options);
    manager.on('warning', () => {});
    await manager.close();
  }
});

/** The consequences that the page names for a user of a Cluster without these rights. */
const DEGRADED_IN_A_CLUSTER: Readonly<Record<string, string>> = {
  '': 'works',
  '+cluster|slots': 'ERR_LOCK_CONNECTION NOPERM',
  '+ssubscribe': 'works, warns of WARN_LOCK_POLLING',
};

test('a Cluster needs what the page says', async (t) => {
  if (serverVersion().startsWith('6.')) return t.skip('it has no shard channels');
  const cluster = await Cluster.start();
  const { rules } = leastRights('for a Cluster');
  try {
    for (const [right, expected] of Object.entries(DEGRADED_IN_A_CLUSTER)) {
      const given = { ...user, rules: rules.filter((rule) => rule !== right) };
      const target = {
        cluster: await Promise.all(cluster.nodes.map((node) => enrol(node, given))),
      };
      assert.equal(await waitInCluster(target, cluster), expected, `without ${right}`);
    }
  } finally {
    await cluster.stop();
  }
});

/** One manager waits for the lock of another; answers the result. */
async function waitInCluster(target: ClusterTarget, cluster: Cluster): Promise<string> {
  const opened: LockManager[] = [];
  let warning = '';
  const open = async () => {
    const manager = await connect(target);
    manager.on('warning', ({ code }) => {
      warning = `, warns of ${code}`;
    });
    opened.push(manager);
    return manager;
  };
  try {
    const [here, there] = [await open(), await open()];
    const lock = await here.acquire('a');
    const waiting = there.acquire('a');
    const primary = await cluster.primaryOf(await cluster.slotOf('lock:a'));
    const listens = async () => {
      const channels = (await primary.admin.call('PUBSUB', 'SHARDCHANNELS')) as string[];
      return channels.length > 0 || warning !== '';
    };
    await until(listens, 'the waiter to listen, or to know that it may not');
    await lock.release();
    await (await waiting).release();
    return `works${warning}`;
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    return `${code} ${/NOPERM/.exec(message) ?? message}`;
  } finally {
    await Promise.all(opened.map((manager) => manager.close()));
  }
}

test('Sentinels need what the page says', async () => {
  const config = `sentinel monitor master 127.0.0.1 ${server.port} 1\n`;
  const sentinel = await RedisServer.start({ sentinel: config });
  const rules = 'resetchannels &+switch-master -@all +sentinel|get-master-addr-by-name +subscribe';
  const page = readFileSync(join(ROOT, 'docs', 'operations.md'), 'utf8');
  assert.ok(page.replaceAll('\n', ' ').includes(rules));
  try {
    const url = await enrol(sentinel, { ...user, rules: rules.split(' ') });
    const locks = await connect({ sentinels: [url], master: 'master' });
    locks.on('warning', () => {});
    const listens = async () =>
      /sub=1 .*user=holdfast /.test(String(await sentinel.admin.client('LIST')));
    await until(listens, 'the manager to listen to it');
    await locks.close();
  } finally {
    await sentinel.stop();
  }
});

test('no key but locks, no channel but holdfast, no command that is not named', async () => {
  const url = await enrol(server, user);
  const manager = await connect(url, { prefix: 'other:' });
  manager.on('warning', () => {});
  await assert.rejects(manager.acquire('a'), { serverCode: 'NOPERM' });
  await manager.close();
  const client = server.client({ username: user.name, password: user.password });
  await assert.rejects(client.get('other'), /NOPERM/);
  await assert.rejects(client.publish('news', 'x'), /NOPERM/);
  await assert.rejects(client.flushall(), /NOPERM/);
  client.disconnect();
});
