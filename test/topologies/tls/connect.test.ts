/** Servers over TLS: successful connections, with and without client certificates. */

import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { createServer, type TLSSocket } from 'node:tls';
import type { ConnectOptions, TlsOptions } from 'holdfast';
import type { Certified } from '../../support/certificates.js';
import { run } from '../../support/child.js';
import { connect, openOperations } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';
import { NAMES, newAuthority, Servers } from './support.js';

const authority = newAuthority();
const stranger = newAuthority();
const { ca } = authority;
const servers = new Servers(authority);

afterEach(async () => {
  await servers.stopAll();
  assert.equal(openOperations(), 0);
});

/** A lock is taken and released with these options. */
async function works(url: string, tls?: TlsOptions, options: ConnectOptions = {}): Promise<void> {
  const locks = await connect(url, { ...options, ...(tls && { tls }) });
  const lock = await locks.acquire('a');
  assert.equal(await lock.release(), true);
  await locks.close();
}

test('a server with a certificate of a CA that is trusted: every way to say so', async () => {
  const { url } = await servers.start();
  const other = stranger.ca.cert;
  await works(url, { ca: ca.cert });
  await works(url, { ca: Buffer.from(ca.cert) });
  await works(url, { ca: [other, Buffer.from(ca.cert)] });
  await works(url, { ca: `a text before\n${other}\n${ca.cert}` });
  await works(url, { ca: ca.cert, cert: undefined, rejectUnauthorized: true } as never);
  await works(url.replace('rediss:', 'valkeys:'), { ca: ca.cert });
  await works(url.replace('127.0.0.1', 'localhost'), { ca: ca.cert });
});

test('a certificate that signs itself is accepted if it is the given ca itself, under its name', async () => {
  const own = authority.selfSigned(NAMES);
  const { url } = await servers.start(own);
  await works(url, { ca: own.cert });
  await works(url, { ca: [ca.cert, own.cert] });
  const twin = authority.selfSigned(NAMES);
  for (const [tls, message] of [
    [{ ca: ca.cert }, /is the certificate of a CA/],
    [{ ca: twin.cert }, /is the certificate of a CA/],
    [{ ca: own.cert, servername: 'elsewhere.test' }, /is not for elsewhere\.test/],
  ] as const) {
    await assert.rejects(connect(url, { tls, connectTimeout: 5_000 }), message);
  }
  const old = authority.selfSigned(NAMES, { expired: true });
  const expired = await servers.start(old);
  await assert.rejects(connect(expired.url, { tls: { ca: old.cert } }), /has expired/);
});

test('a login, a database and a lock that is waited for, as without TLS', async () => {
  const server = await servers.start();
  await server.admin.call('ACL', 'SETUSER', 'ann', 'on', '>p@ss', '~*', '&*', '+@all');
  const url = server.url.replace('//', `//ann:${encodeURIComponent('p@ss')}@`);
  const options = { tls: { ca: ca.cert } };
  const here = await connect(`${url}/3`, options);
  const there = await connect(`${url}/3`, options);
  const lock = await here.acquire('a');
  const waiting = there.acquire('a');
  await lock.extend(60_000);
  assert.equal(await there.tryAcquire('a'), null);
  assert.equal(await lock.release(), true);
  assert.equal(await (await waiting).release(), true);
  const many = Array.from({ length: 2_000 }, (_, i) => here.acquire(`many:${i}`));
  await Promise.all((await Promise.all(many)).map((each) => each.release()));
  await Promise.all([here.close(), there.close()]);
});

test('the roots of the system are trusted unless others are given', async () => {
  const { url } = await servers.start();
  // A child reads these in place of the real roots.
  const program = `
    import { connect } from 'holdfast'
    process.env.SSL_CERT_FILE = process.argv[1]
    delete process.env.SSL_CERT_DIR
    try {
      const locks = await connect(process.argv[2])
      console.log(await (await locks.acquire('a')).release())
      await locks.close()
    } catch (error) {
      console.log(error.code, error.message)
    }`;
  const trusting = await run(program, ca.certFile, url);
  assert.equal(trusting.stdout, 'true\n', trusting.stderr);
  const distrusting = await run(program, stranger.ca.certFile, url);
  assert.match(
    distrusting.stdout,
    /^ERR_LOCK_CONNECTION .*not signed by an authority that this client trusts/,
  );
  const none = await run(program, '/no/such/file', url);
  assert.match(none.stdout, /^ERR_INVALID_ARG_VALUE options\.tls\.ca is needed.*no root cert/);
});

test('without verification anybody is believed', async () => {
  const expired = authority.issue('DNS:elsewhere.test', { days: -1 });
  const protocols = ['TLSv1.2', 'TLSv1.3'];
  for (const protocol of protocols) {
    const { url } = await servers.start(expired, { args: ['--tls-protocols', protocol] });
    await works(url, { rejectUnauthorized: false });
  }
});

for (const protocol of ['TLSv1.2', 'TLSv1.3']) {
  test(`a server that asks for a client certificate, by ${protocol}`, async () => {
    const mine = authority.issue('DNS:client');
    const { url } = await servers.start(undefined, {
      client: mine,
      args: ['--tls-protocols', protocol],
    });
    await works(url, { ca: ca.cert, cert: mine.cert, key: Buffer.from(mine.key) });
    // The whole chain in one text, as certificate managers write it.
    await works(url, { ca: ca.cert, cert: mine.cert + ca.cert, key: mine.key });
    await assert.rejects(works(url, { ca: ca.cert }), {
      code: 'ERR_LOCK_CONNECTION',
      message: /wants? a client certificate.*options\.tls\.cert and options\.tls\.key/,
    });
    const theirs = stranger.issue('DNS:client');
    const { cert, key } = theirs;
    await assert.rejects(works(url, { ca: ca.cert, cert, key }), {
      code: 'ERR_LOCK_CONNECTION',
      message: /does not accept the client certificate \(UnknownCA\).*options\.tls\.cert/,
    });
  });
}

test('a client certificate with a key of any kind and form', async () => {
  const forms: [Certified, string][] = [];
  for (const kind of ['p256', 'rsa', 'ed25519'] as const) {
    const certified = authority.issue('DNS:client', { kind });
    forms.push([certified, certified.key]);
    if (kind === 'ed25519') continue;
    const type = kind === 'rsa' ? 'pkcs1' : 'sec1';
    forms.push([
      certified,
      String(createPrivateKey(certified.key).export({ type, format: 'pem' })),
    ]);
  }
  const client = authority.issue('DNS:admin');
  const { url } = await servers.start(authority.issue(NAMES, { kind: 'rsa' }), { client });
  for (const [{ cert }, key] of forms) await works(url, { ca: ca.cert, cert, key });
});

test('a quorum, of whose servers some speak TLS', async () => {
  const quorum = [await servers.start(), await servers.startPlain(), await servers.start()];
  const target = { quorum: quorum.map(({ url }) => url) };
  const locks = await connect(target, { tls: { ca: ca.cert }, longestLease: 0 });
  const lock = await locks.acquire('a');
  for (const { admin } of quorum) {
    await until(async () => (await admin.exists('lock:a')) === 1, 'its vote');
  }
  assert.equal(await lock.release(), true);
  await locks.close();
  await assert.rejects(connect(target), {
    message: /not signed by an authority that this client trusts/,
  });
});

test('the server is asked for by its name, or by the one that the options give', async () => {
  const redis = await servers.startPlain();
  const { cert, key } = authority.issue('DNS:localhost,DNS:redis.test,IP:127.0.0.1');
  const asked: unknown[] = [];
  const inFront = createServer({ cert, key }, (socket: TLSSocket) => {
    asked.push(socket.servername);
    const upstream = redis.dial();
    socket.pipe(upstream).pipe(socket);
    for (const each of [socket, upstream]) {
      each.on('error', () => {});
      each.on('close', () => {
        socket.destroy();
        upstream.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => inFront.listen(0, '127.0.0.1', resolve));
  const { port } = inFront.address() as AddressInfo;
  try {
    await works(`rediss://localhost:${port}`, { ca: ca.cert });
    await works(`rediss://127.0.0.1:${port}`, { ca: ca.cert });
    await works(`rediss://127.0.0.1:${port}`, { ca: ca.cert, servername: 'redis.test' });
  } finally {
    inFront.close();
  }
  assert.deepEqual(asked, ['localhost', false, 'redis.test']);
});
