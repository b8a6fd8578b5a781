/** How processes that use the package begin and end. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { type Ended, ROOT, run, ended as untilEnded } from '../../support/child.js';
import { connect } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();

const clients = async () => String(await server.admin.client('LIST'));

function endedWell(ended: Ended, code = 0): void {
  assert.deepEqual(
    { code: ended.code, signal: ended.signal },
    { code, signal: null },
    ended.stderr,
  );
}

const CONNECT = `
  import { connect } from 'holdfast';
  const [url] = process.argv.slice(1);
  const locks = await connect(url);
`;

test('a script that closes its manager exits by itself', async () => {
  const ended = await run(
    `${CONNECT}
    const lock = await locks.acquire('a');
    await lock.release();
    await locks.close();
    console.log('done');`,
    server.url,
  );
  endedWell(ended);
  assert.equal(ended.stdout, 'done\n');
});

test('await at the top level waits, and held locks do not keep the process alive', async () => {
  const ended = await run(
    `${CONNECT}
    await Promise.all([1, 2, 3].map((i) => locks.acquire('held:' + i, { ttl: 60_000 })));
    console.log('done');`,
    server.url,
  );
  endedWell(ended);
  assert.equal(ended.stdout, 'done\n');
});

test('a lock that was acquired with leaveToExpire outlasts its process', async () => {
  const ended = await run(
    `${CONNECT}
    await locks.acquire('kept', { ttl: 60_000, renew: false, leaveToExpire: true });`,
    server.url,
  );
  endedWell(ended);
  await until(
    async () => !(await clients()).includes('name=holdfast '),
    'the end of its connection',
  );
  assert.equal(await server.admin.exists('lock:kept'), 1);
});

test('an acquire that waits keeps the process alive until it has its answer', async () => {
  await server.admin.set('lock:later', 'somebody', 'PX', 60_000);
  const running = run(
    `${CONNECT}
    const lock = await locks.acquire('later', { wait: 60_000 });
    console.log(await lock.release());`,
    server.url,
  );
  const waits = async () => (await server.admin.exists('{lock:later}:queue')) === 1;
  await until(waits, 'its place in the queue');
  await server.admin.del('lock:later');
  const ended = await running;
  endedWell(ended);
  assert.equal(ended.stdout, 'true\n');
});

test('a connect that fails ends with a non-zero code, not with a crash', async () => {
  const ended = await run(CONNECT, 'redis://127.0.0.1:1');
  endedWell(ended, 1);
  assert.match(ended.stderr, /LockConnectionError: cannot connect to redis:\/\/127\.0\.0\.1:1/);
});

test('process.exit with operations in flight does not crash, 60 times over', async () => {
  const source = `${CONNECT}
    // Names of its own, or it would wait for the leases of those that ended before.
    const name = (i) => 'exit:' + process.pid + ':' + (i % 7);
    const under = Array.from({ length: 50 }, (_, i) => locks.acquire(name(i), { ttl: 1_000 }));
    if (process.argv[2] === 'microtask') await Promise.resolve();
    if (process.argv[2] === 'some') await Promise.race(under);
    if (process.argv[2] === 'immediate') await new Promise((resolve) => setImmediate(resolve));
    process.exit(7);`;
  const moments = ['now', 'microtask', 'some', 'immediate'];
  for (let round = 0; round < 60; round += 2) {
    const both = [0, 1].map((i) => run(source, server.url, moments[(round + i) % 4] ?? 'now'));
    for (const ended of await Promise.all(both)) endedWell(ended, 7);
  }
  await until(async () => (await server.admin.keys('lock:exit:*')).length === 0, 'leases to end');
});

for (const [how, source, code] of [
  ['process.exit', 'process.exit(3);', 3],
  ['an uncaught error', "setImmediate(() => { throw new Error('mine'); });", 1],
  ['close and process.exit in one turn', 'locks.close(); process.exit(3);', 3],
  ['its natural end', '', 0],
] as const) {
  test(`${how} gives the locks back at once`, async () => {
    const ended = await run(
      `${CONNECT}
      await locks.acquire(['ended:1', 'ended:2'], { ttl: 60_000 });
      await locks.acquire('ended:kept', { ttl: 60_000, renew: false, leaveToExpire: true });
      locks.on('lost', () => console.log('lost'));
      ${source}`,
      server.url,
    );
    endedWell(ended, code);
    assert.equal(ended.stdout, '');
    assert.deepEqual(await server.admin.keys('lock:ended:*'), ['lock:ended:kept']);
    await server.admin.del('lock:ended:kept');
  });
}

test('a connect that was refused for its certificate keeps nobody from giving back at the end', async () => {
  const ended = await run(
    `${CONNECT}
    await locks.acquire('beside', { ttl: 60_000 });
    const refused = await connect('rediss://127.0.0.1:1', { tls: { ca: 'nothing' } }).catch((error) => error);
    console.log(refused.code);
    process.exit();`,
    server.url,
  );
  endedWell(ended);
  assert.equal(ended.stdout, 'ERR_INVALID_ARG_VALUE\n');
  assert.equal(await server.admin.exists('lock:beside'), 0);
});

test('a process with several managers gives back what each of them holds', async () => {
  const ended = await run(
    `${CONNECT}
    const all = [locks, await connect(url), await connect(url)];
    for (const [i, each] of all.entries()) await each.acquire('end:' + i, { ttl: 60_000 });
    process.exit();`,
    server.url,
  );
  endedWell(ended);
  assert.deepEqual(await server.admin.keys('lock:end:*'), []);
});

test('a server that does not answer holds up the end of a process for a moment', async () => {
  const ended = await run(
    `${CONNECT}
    await locks.acquire('slow', { ttl: 500 });
    process.kill(Number(process.argv[2]), 'SIGSTOP');
    const begun = process.hrtime.bigint();
    process.on('exit', () => console.log(Number(process.hrtime.bigint() - begun) / 1e6));
    process.exit(0);`,
    server.url,
    String(server.pid),
  ).finally(() => process.kill(server.pid, 'SIGCONT'));
  endedWell(ended);
  // Without an answer the test would hang, so the wait has an end of its own.
  assert.ok(Number(ended.stdout) >= 90, ended.stdout);
});

for (const [event, cause] of Object.entries({
  lost: `await locks.acquire('brief', { maxHold: 100 });`,
  disconnect: `
    const admin = createConnection(new URL(url).port, '127.0.0.1');
    for (const type of ['normal', 'pubsub']) admin.write('CLIENT KILL TYPE ' + type + '\\r\\n');`,
})) {
  test(`a listener of '${event}' that throws stops nothing else`, async () => {
    const ended = await run(
      `${CONNECT}
      import { createConnection } from 'node:net';
      const other = await connect(url);
      setInterval(() => {}, 1_000);
      locks.once('${event}', () => { throw new Error('mine'); });
      const thrown = new Promise((resolve) => process.once('uncaughtException', resolve));
      ${cause}
      console.log((await thrown).message);
      for (const manager of [locks, other]) {
        await manager.request('after', () => console.log('goes on'));
        await manager.close();
      }
      process.exit();`,
      server.url,
    );
    endedWell(ended);
    assert.equal(ended.stdout, 'mine\ngoes on\ngoes on\n');
  });
}

test('SIGKILL of a holder costs the others its lease at most', async () => {
  const ended = await run(
    `${CONNECT}
    await locks.acquire('killed', { ttl: 500 });
    process.kill(process.pid, 'SIGKILL');`,
    server.url,
  );
  assert.equal(ended.signal, 'SIGKILL');
  assert.ok((await server.admin.pttl('lock:killed')) <= 500);
  await until(async () => (await server.admin.exists('lock:killed')) === 0, 'the lease to end');
});

test('a manager that is forgotten lets go of its connection', async () => {
  const ended = await run(
    `import { connect } from 'holdfast';
    const [url] = process.argv.slice(1);
    for (let i = 0; i < 20; i++) await connect(url, { clientName: 'forgotten' });
    console.log('done');`,
    server.url,
  );
  endedWell(ended);
  await until(async () => !(await clients()).includes('forgotten'), 'the connections to end');
});

test('require and import give the same classes', async () => {
  const ended = await run(
    `import { createRequire } from 'node:module';
    import * as esm from 'holdfast';
    const cjs = createRequire(process.cwd() + '/')('holdfast');
    const names = Object.keys(esm).filter((name) => name !== 'default').sort();
    console.log(names.join(), names.every((name) => esm[name] === cjs[name]));
    console.log(Object.keys(cjs).sort().join());`,
  );
  endedWell(ended);
  const [first, second] = ended.stdout.trim().split('\n');
  assert.equal(first, `${second} true`);
  assert.match(String(second), /LockUnmarkedError,StaleFenceError,connect,connectLazily$/);
});

test('who waits for a lock of a process that a signal has ended is told of the handler', async () => {
  const source = `
    ${CONNECT}
    globalThis.lock = await locks.acquire('a', { ttl: 60_000 });
    console.log(lock.token);
    setInterval(() => {}, 60_000);`;
  const flags = ['--input-type=module', '--eval', source, '--', server.url];
  const child = spawn(process.execPath, flags, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  const end = untilEnded(child);
  await once(child.stdout, 'data');
  const locks = await connect(server.url);
  const told = async (name: string) => {
    const error = await locks.acquire(name, { wait: 0 }).catch((reason) => reason);
    assert.equal(error.code, 'ERR_LOCK_TIMEOUT');
    return error.message as string;
  };
  assert.doesNotMatch(await told('a'), /no process/, 'it runs');
  child.kill('SIGTERM');
  await end;
  const advice = new RegExp(
    `by ".*\\.${child.pid}", and its lease ends in .*; no process ${child.pid} is seen on this machine ` +
      'any more: if SIGTERM or SIGINT .* has ended it, .* await locks\\.close\\(\\)',
  );
  assert.match(await told('a'), advice);
  // As if it ran elsewhere, or had a name of its own.
  for (const label of [`elsewhere.${child.pid}`, 'web-1', `${child.pid}`]) {
    const other = await locks.acquire('b', { label });
    assert.doesNotMatch(await told('b'), /no process/, label);
    await other.release();
  }
  await locks.forceRelease('a');
  await locks.close();
});
