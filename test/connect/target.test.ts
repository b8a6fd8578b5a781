import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { type ConnectTarget, connect } from '../support/holdfast.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ['no url at all', /not a URL/],
  ['http://:s3cret@localhost', /must begin with redis:/],
  ['redis://localhost?password=s3cret', /the parameter password.*before the host/],
  ['rediss://:s3cret@localhost?tls=false', /rediss:\/\/, which is TLS/],
  ['rediss://:s3cret@localhost?ssl_cert_reqs=none', /ssl_cert_reqs.*rejectUnauthorized: false/],
  ['redis://localhost?connect_timeout=s3cret', /connect_timeout.*connectTimeout/],
  ['redis://localhost/2?db=3', /one database behind the \/, and another/],
  ['redis://:pa@localhost?tls=s3cret', /tls.*true or false/],
  ['redis://:12?s3cret@localhost', /percent-encoded.*option password|write %3F/],
  ['redis://:pa#s3cret@localhost', /percent-encoded.*option password/],
  ['redis://:12#s3cret@localhost', /write %23|percent-encoded/],
  ['redis://user:pa/s3cret@localhost', /percent-encoded.*option password/],
  ['redis://:s3cret%@localhost', /write %25/],
  ['redis://user:12/s3cret@localhost', /database.*must be a number/],
  ['redis://:s3cret@localhost/one', /database.*must be a number/],
  ['redis://user:12?s3cret=1@localhost', /a \?parameter that holdfast does not know/],
  ['redis://:pass@localhost?%73=s3cret&12s3cret=1', /the parameter s,.*leave it out.*options/],
  ['redis://:pass@localhost?12s3cret=1', /a \?parameter that holdfast does not know/],
  ['redis://localhost?pool_size=s3cret', /the parameter pool_size,.*leave it out.*options/],
  ['redis://localhost?sslmode=s3cret', /the parameter sslmode.*disable, require or verify-full/],
  ['rediss://:s3cret@localhost?sslmode=disable', /rediss:\/\/, which is TLS/],
  ['redis://localhost?sslrootcert=s3cret', /the parameter sslrootcert.*option tls\.ca/],
  ['redis://localhost?dial_timeout=s3cret', /dial_timeout.*connectTimeout/],
  ['redis://localhost?sentinelMasterId=s3cret', /sentinelMasterId.*sentinels: \[/],
  ['redis://localhost?redis_cluster=1&x=s3cret', /redis_cluster.*cluster: \[/],
  ['redis://localhost?allowUsernameInURI=s3cret', /allowUsernameInURI.*true or false/],
  ['redis://localhost?constructor=s3cret', /the parameter constructor.*leave it out/],
  ['redis://:s3cret@localhost:99999', /not a URL/],
  ['unix://host/path?pass=s3cret', /absolute path/],
  ['unix:///path?pass=s3cret&base=1', /and no other/],
  ['redis://s3cret@localhost', /a username and no password.*redis:\/\/:password@host/],
  ['unix:///path?user=s3cret', /a username and no password.*option password/],
];

for (const [url, message] of REFUSED) {
  test(`connect: refuses ${url.replace('s3cret', '…')} and shows no password`, async () => {
    await assert.rejects(connect(url), (error: Error & { code: string }) => {
      assert.ok(error instanceof TypeError);
      assert.equal(error.code, 'ERR_INVALID_ARG_VALUE');
      assert.match(error.message, message);
      assert.ok(!`${error.stack}${JSON.stringify(error)}`.includes('s3cret'));
      return true;
    });
  });
}

test('connect: refuses a target that is no URL', async () => {
  for (const sentinel of [null, 6379]) {
    const target = { sentinels: [sentinel as never], master: 'm' };
    const message = /must be a URL, 'host:port' or \{ host, port \}/;
    await assert.rejects(connect(target), { code: 'ERR_INVALID_ARG_TYPE', message });
  }
  await assert.rejects(connect(6379 as never), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('connect: the forms that other libraries take are told by their names here', async () => {
  for (const [target, message] of [
    [{ url: 'redis://localhost' }, /connect\(url\)/],
    [['redis://a', 'redis://b'], /\{ cluster: \[urls\] \}, \{ quorum: \[urls\] \}/],
    [{ nodes: [] }, /\{ cluster: \[urls\] \}/],
  ] as const) {
    await assert.rejects(connect(target as never), { code: 'ERR_INVALID_ARG_TYPE', message });
  }
});

let server: RedisServer | undefined;
const saved = { ...process.env };

beforeEach(() => {
  delete process.env['HOLDFAST_URL'];
  delete process.env['REDIS_URL'];
});

afterEach(async () => {
  Object.assign(process.env, saved);
  await server?.stop();
  server = undefined;
});

async function takes(target: string | URL | undefined): Promise<void> {
  const locks = await connect(target);
  const lock = await locks.acquire('a');
  assert.equal(await lock.release(), true);
  await locks.close();
}

test('connect: understands the parameters that services put into their URLs', async () => {
  server = await RedisServer.start();
  const [first, second] = [`${server.url}/3`, `${server.url}?family=0&ssl=false&protocol=2&db=3`];
  const [a, b] = [await connect(first), await connect(second)];
  await using held = await a.acquire('same');
  assert.equal(await b.tryAcquire('same'), null, 'the database is the same');
  assert.equal(held.held, true);
  await Promise.all([held.release(), a.close(), b.close()]);
  await takes(`${server.url}?database=3&sslmode=disable&protocol=resp3&allowUsernameInURI=true`);
  for (const secure of ['tls=true&ssl_cert_reqs=required', 'sslmode=require']) {
    const plain = await connect(`${server.url}?${secure}`).catch(String);
    assert.match(`${plain}`, /rediss:\/\/.*does not speak TLS/s);
  }
});

test('connect: takes a redis:// URL, a valkey:// URL and a URL object', async () => {
  server = await RedisServer.start();
  await takes(server.url);
  await takes(server.url.replace('redis:', 'valkey:'));
  await takes(new URL(server.url));
  await takes(server.url.replace('127.0.0.1', 'localhost'));
});

test('connect: takes HOLDFAST_URL before REDIS_URL from the environment', async () => {
  server = await RedisServer.start();
  process.env['REDIS_URL'] = server.url;
  process.env['HOLDFAST_URL'] = '';
  await takes(undefined);
  process.env['HOLDFAST_URL'] = 'redis://127.0.0.1:1';
  await assert.rejects(takes(undefined), { code: 'ERR_LOCK_CONNECTION' });
});

test('connect: takes a socket file', async () => {
  server = await RedisServer.start({ socket: true });
  await takes(server.url);
});

test('connect: selects the database of the URL', async () => {
  server = await RedisServer.start();
  const locks = await connect(`${server.url}/3`);
  const lock = await locks.acquire('a');
  const other = server.client({ db: 3 });
  assert.equal(await other.get('lock:a'), lock.token);
  assert.equal(await server.admin.get('lock:a'), null);
  other.disconnect();
  await locks.close();
});

test('connect: a database that the server does not have is refused', async () => {
  server = await RedisServer.start();
  await assert.rejects(connect(`${server.url}/99`), {
    code: 'ERR_LOCK_SERVER',
    message: /the server says ERR DB index is out of range/,
  });
});

test('connect: logs in with the user and password of the URL, or of the options', async () => {
  server = await RedisServer.start();
  await server.admin.call('ACL', 'SETUSER', 'ann', 'on', '>p@ss:w/rd', '~*', '&*', '+@all');
  await server.admin.call('CONFIG', 'SET', 'requirepass', 'default-secret');
  const host = `127.0.0.1:${server.port}`;
  await takes(`redis://ann:${encodeURIComponent('p@ss:w/rd')}@${host}`);
  await takes(`redis://:default-secret@${host}`);
  const locks = await connect(`redis://${host}`, { username: 'ann', password: 'p@ss:w/rd' });
  await locks.close();
});

test('connect: a user without a password is refused, however it is given, and an empty password is sent', async () => {
  server = await RedisServer.start();
  await server.admin.call('ACL', 'SETUSER', 'ann', 'on', 'nopass', '~*', '&*', '+@all');
  const where = { host: '127.0.0.1', port: server.port };
  const host = `127.0.0.1:${server.port}`;
  const url = `redis://ann@${host}`;
  const own = { username: 'ann' };
  const sentinels = [host];
  const refused: [ConnectTarget, ConnectOptions?][] = [
    [url],
    [new URL(url)],
    [`redis://${host}`, own],
    [{ ...where, ...own }],
    [where, own],
    [{ cluster: [url] }],
    [{ cluster: [`redis://${host}`] }, own],
    [{ quorum: ['redis://localhost:1', 'redis://localhost:2', url] }],
    [{ sentinels, master: 'm', ...own }],
    [{ sentinels, master: 'm' }, own],
    [{ sentinels, master: 'm', sentinelUsername: 'ann' }],
    [{ sentinels: [`ann@${host}`], master: 'm' }],
  ];
  const received = async () => /total_connections_received:(\d+)/.exec(await info())?.[1];
  const info = async () => String(await server?.admin.info('stats'));
  const before = await received();
  for (const [target, options] of refused) {
    await assert.rejects(connect(target, options), {
      code: 'ERR_INVALID_ARG_VALUE',
      message: /a username and no password: add the option password, '' for a user that needs none/,
    });
  }
  assert.equal(await received(), before, 'nothing was sent');
  const taken: [ConnectTarget, ConnectOptions?][] = [
    [`redis://ann:@${host}`],
    [url, { password: '' }],
    [{ ...where, ...own, password: '' }],
    [`redis://${host}`, { ...own, password: '' }],
    [new Redis({ ...where, ...own, lazyConnect: true })],
    [createClient({ socket: where, ...own })],
  ];
  for (const [target, options] of taken) {
    const locks = await connect(target, { ...options, clientName: 'nopass' });
    const clients = String(await server.admin.client('LIST')).split('\n');
    const users = clients.filter((line) => line.includes('name=nopass '));
    assert.match(users.join('\n'), /^.* user=ann .*$/);
    await locks.close();
  }
  // What everybody is without a login.
  await takes(`redis://default@${host}`);
});

test('connect: shows its name in CLIENT LIST, and leaves when it closes', async () => {
  server = await RedisServer.start();
  const { admin } = server;
  const mine = async () => String(await admin.client('LIST')).match(/name=shop-1 /g)?.length ?? 0;
  const locks = await connect(server.url, { clientName: 'shop-1' });
  assert.equal(await mine(), 1);
  await locks.close();
  await until(async () => (await mine()) === 0, 'the connection to end');
});

test('connect: refuses a Cluster that is none', async () => {
  const cases: [unknown, RegExp][] = [
    [{ cluster: [] }, /URLs of some of its servers/],
    [{ cluster: 'redis://localhost' }, /URLs of some of its servers/],
    [{ cluster: ['redis://localhost'], prefix: 'x' }, /without "prefix"; use the second argument/],
    [{ cluster: ['redis://a/3', 'redis://b/4'] }, /one database serves a Cluster, but .*b.*4/],
    [{ cluster: ['unix:///run/redis.sock'] }, /over TCP/],
    [{ cluster: ['redis://:s3cret%@localhost'] }, /write %25/],
  ];
  for (const [target, message] of cases) {
    await assert.rejects(connect(target as never), (error: Error & { code: string }) => {
      assert.match(error.code, /^ERR_INVALID_ARG/);
      assert.match(error.message, message);
      assert.ok(!`${error.stack}`.includes('s3cret'));
      return true;
    });
  }
});

test('connect: says why no server of a Cluster could be asked', async () => {
  server = await RedisServer.start();
  const alone = server.url;
  const dead = 'redis://:s3cret@127.0.0.1:1';
  await assert.rejects(connect({ cluster: [dead, alone] }), (error: Error & { code: string }) => {
    assert.equal(error.code, 'ERR_LOCK_CONNECTION');
    assert.match(error.message, /127\.0\.0\.1:1: .*refused/);
    assert.match(error.message, /cluster support disabled/);
    assert.ok(!error.message.includes('s3cret'));
    return true;
  });
});

test('connect: Windows has neither socket files nor named pipes of a server', async () => {
  const here = Object.getOwnPropertyDescriptor(process, 'platform') as PropertyDescriptor;
  Object.defineProperty(process, 'platform', { ...here, value: 'win32' });
  try {
    for (const target of ['unix:///run/redis.sock', { path: String.raw`\\.\pipe\redis` }]) {
      await assert.rejects(connect(target), {
        code: 'ERR_INVALID_ARG_VALUE',
        message: /on Windows a server is reached by TCP/,
      });
    }
  } finally {
    Object.defineProperty(process, 'platform', here);
  }
});
