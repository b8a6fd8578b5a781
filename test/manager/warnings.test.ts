/** The warnings of a manager about its server when it connects. */

import assert from 'node:assert/strict';
import { errorMonitor } from 'node:events';
import { afterEach, test } from 'node:test';
import { run } from '../support/child.js';
import { closeManagers, connect, holdfast, type LockManager } from '../support/holdfast.js';
import { RedisServer, type ServerOptions } from '../support/server.js';
import { until } from '../support/wait.js';

const running: RedisServer[] = [];

afterEach(async () => {
  await closeManagers();
  await Promise.all(running.splice(0).map((server) => server.stop()));
});

async function start(options: ServerOptions = {}): Promise<RedisServer> {
  const server = await RedisServer.start(options);
  running.push(server);
  return server;
}

/** The warnings of a new manager, in this order. */
async function warningsOf(url: string): Promise<{ locks: LockManager; warnings: Error[] }> {
  const locks = await connect(url);
  const warnings: Error[] = [];
  locks.on('warning', (warning) => {
    assert.ok(warning instanceof holdfast.LockError);
    warnings.push(warning);
  });
  return { locks, warnings };
}

/** Breaks the connection, and waits until the next one has emitted all its warnings. */
async function reconnect(server: RedisServer, locks: LockManager): Promise<void> {
  const again = new Promise((resolve) => locks.once('reconnect', () => resolve(undefined)));
  await server.killClients();
  await again;
  await locks.tryAcquire('told').catch(() => null);
}

function isAbout(warning: Error | undefined, code: string, message: RegExp): void {
  assert.ok(warning !== undefined, `no ${code}`);
  assert.equal((warning as Error & { code: string }).code, code);
  assert.match(warning.message, message);
  assert.match(warning.message, /^redis:\/\/127\.0\.0\.1:\d+\/0 /);
}

test('a server that may evict locks: one warning, not one per connection', async () => {
  const memory = ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'];
  const server = await start({ args: memory });
  const { locks, warnings } = await warningsOf(server.url);
  await until(() => warnings.length > 0, 'the warning');
  isAbout(
    warnings[0],
    'WARN_LOCK_EVICTION',
    /may evict locks: the maxmemory-policy of 127\.0\.0\.1:\d+ is allkeys-lru; .*noeviction/,
  );
  for (let round = 0; round < 2; round++) await reconnect(server, locks);
  assert.equal(warnings.length, 1);
});

test('a policy that evicts, with no limit to reach yet: the warning says so', async () => {
  for (const policy of ['volatile-lru', 'volatile-ttl', 'allkeys-random']) {
    const { url } = await start({ args: ['--maxmemory-policy', policy] });
    const { warnings } = await warningsOf(url);
    await until(() => warnings.length > 0, 'the warning');
    const message = new RegExp(`is ${policy}, which evicts nothing as long as maxmemory is 0;`);
    isAbout(warnings[0], 'WARN_LOCK_EVICTION', message);
  }
});

test('a server that evicts nothing: no warning', async () => {
  const server = await start({ args: ['--maxmemory', '100mb'] });
  const { locks, warnings } = await warningsOf(server.url);
  await reconnect(server, locks);
  assert.deepEqual(warnings, []);
});

test('a replica: one warning, however often it is one', async () => {
  const server = await start();
  const { locks, warnings } = await warningsOf(server.url);
  for (let round = 0; round < 2; round++) {
    await server.admin.call('REPLICAOF', '127.0.0.1', '1');
    await reconnect(server, locks);
    await server.admin.call('REPLICAOF', 'NO', 'ONE');
    await reconnect(server, locks);
  }
  assert.equal(warnings.length, 1);
  isAbout(
    warnings[0],
    'WARN_LOCK_REPLICA',
    /takes no locks: 127\.0\.0\.1:\d+ is a replica; connect to its primary/,
  );
  await (await locks.acquire('a')).release();
});

for (const [denied, rules, effect] of [
  ['MGET', ['~*', '+@all', '-mget'], /NOPERM/],
  [
    'the fence counter',
    ['~lock:*', '~{lock:*}:*', '+@all'],
    /NOPERM.*its fences have no order with those of clients that may use the counter of all locks/,
  ],
] as const) {
  test(`a server that denies ${denied}: one warning, and locks by scripts alone`, async () => {
    const server = await start();
    await server.admin.call('ACL', 'SETUSER', 'poor', 'on', '>pw', '&*', ...rules);
    const { locks, warnings } = await warningsOf(server.url.replace('//', '//poor:pw@'));
    await until(() => warnings.length > 0, 'the warning');
    const message =
      /runs a script for each lock, which costs twice the CPU: NOPERM .*mget.*holdfast:\*/;
    isAbout(warnings[0], 'WARN_LOCK_SCRIPTS', message);
    assert.match(`${warnings[0]?.message}`, effect);
    for (let round = 0; round < 2; round++) await reconnect(server, locks);
    assert.equal(warnings.length, 1);
    await server.admin.call('ACL', 'LOG', 'RESET');
    const first = await locks.acquire('a');
    assert.equal(await first.release(), true);
    const second = await locks.acquire('a');
    assert.ok(second.fence > first.fence);
    assert.equal(await second.release(), true);
    assert.deepEqual(await server.admin.call('ACL', 'LOG'), [], 'nothing is tried in vain');
  });
}

test('a quorum tells which of its servers may evict locks', async () => {
  const careless = await start({ args: ['--maxmemory-policy', 'allkeys-lru'] });
  const servers = [await start(), careless, await start()];
  const locks = await connect({ quorum: servers.map(({ url }) => url) });
  const warnings: Error[] = [];
  locks.on('warning', (warning) => warnings.push(warning));
  await until(() => warnings.length > 0, 'the warning');
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]?.message ?? '', new RegExp(`of 127\\.0\\.0\\.1:${careless.port} is`));
});

/** The quorum warnings of servers with these settings, once its first lock was taken and released. */
async function quorumWarnings(longestLease: number, ...settings: string[][]) {
  const servers = await Promise.all(settings.map((args) => start({ args })));
  const quorum = servers.map(({ url }) => url);
  const locks = await connect({ quorum }, { longestLease });
  const warnings: (Error & { code?: string })[] = [];
  locks.on('warning', (warning) => warnings.push(warning));
  await (await locks.acquire('told', { ttl: 1_000 })).release();
  return { ports: servers.map(({ port }) => port), warnings };
}

const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];

test('a quorum that waits for nobody after a restart tells which server may forget locks', async () => {
  const everysec = ['--appendonly', 'yes', '--appendfsync', 'everysec'];
  const { ports, warnings } = await quorumWarnings(0, DURABLE, everysec, []);
  await until(() => warnings.length > 1, 'the warnings');
  const messages = warnings.map(({ message }) => message).sort();
  for (const [place, why] of [
    [1, 'has appendfsync everysec'],
    [2, 'has appendonly no'],
  ] as const) {
    const one = messages.filter((message) => message.includes(`127.0.0.1:${ports[place]} ${why};`));
    assert.equal(one.length, 1, messages.join('\n'));
    assert.match(one[0] ?? '', /with longestLease: 0 .*appendonly yes and appendfsync always/);
  }
  assert.deepEqual(new Set(warnings.map(({ code }) => code)), new Set(['WARN_LOCK_PERSISTENCE']));
  assert.equal(warnings.length, 2);
});

test('a quorum whose servers keep their data, or wait after a restart: no warning', async () => {
  const durable = await quorumWarnings(0, DURABLE, DURABLE, DURABLE);
  assert.deepEqual(durable.warnings, []);
  const waits = await quorumWarnings(1_000, [], [], []);
  assert.deepEqual(waits.warnings, []);
});

test('without a listener a warning becomes one of the process', async () => {
  const { url } = await start({ args: ['--maxmemory-policy', 'allkeys-lfu'] });
  const program = `
    import { connect } from 'holdfast'
    const locks = await connect(process.argv[1])
    const [warning] = await new Promise((resolve) => process.once('warning', (...args) => resolve(args)))
    console.log(warning.name, warning.code, warning.message)
    await locks.close()`;
  const { stdout, stderr } = await run(program, url);
  assert.match(stdout, /^HoldfastWarning WARN_LOCK_EVICTION redis:.* allkeys-lfu/, stderr);
});

test('a Sentinel: refused at once, with what to do', async () => {
  const { url } = await start({ sentinel: 'sentinel monitor master 127.0.0.1 1 1\n' });
  // Nor does a Sentinel know databases.
  for (const target of [url, `${url}/1`]) {
    await assert.rejects(connect(target), {
      name: 'LockServerError',
      code: 'ERR_LOCK_SERVER',
      serverCode: 'SENTINEL',
      message: /keeps no data; .*\{ sentinels: \[.*\], master: .* \}/,
    });
  }
});

test('a listener of an event that no manager emits is warned of, once', async () => {
  await using manager = await connect('memory:');
  const codes: string[] = [];
  manager.on('warning', ({ code, message }) => codes.push(`${code} ${message}`));
  manager.on('losst' as never, (() => {}) as never);
  manager.once('losst' as never, (() => {}) as never);
  manager.on('error' as never, (() => {}) as never);
  manager.off('never added' as never, (() => {}) as never);
  for (const event of ['newListener', 'removeListener', errorMonitor, 'close', 'lost'] as const) {
    manager.on(event as 'close', () => {});
  }
  assert.equal(codes.length, 2);
  assert.match(codes[0] ?? '', /^WARN_LOCK_EVENT a manager emits no event "losst": it has "lost"/);
  assert.match(codes[1] ?? '', /^WARN_LOCK_EVENT a manager emits no event "error": errors reject/);
});
