/** Refusals of TLS: of the arguments, by this client, and by the server. */

import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { createServer as createWebServer } from 'node:http';
import { type AddressInfo, createServer, connect as dial } from 'node:net';
import { afterEach, test } from 'node:test';
import type { TlsOptions } from 'holdfast';
import { connect, openOperations } from '../../support/holdfast.js';
import { NAMES, newAuthority, Servers } from './support.js';

const authority = newAuthority();
const stranger = newAuthority();
const { ca } = authority;
const servers = new Servers(authority);
const mine = authority.issue('DNS:client');
const theirs = authority.issue('DNS:client');

afterEach(async () => {
  await servers.stopAll();
  assert.equal(openOperations(), 0);
});

/** Lines of every key that is in play: none may be shown. */
const SECRETS = [mine, theirs].flatMap(({ key }) =>
  key.split('\n').filter((line) => /^\w{20}/.test(line)),
);

/** Connecting fails with this, and shows no secret. */
async function refused(
  url: string,
  tls: unknown,
  code: string,
  message: RegExp,
  connectTimeout = 5_000,
): Promise<void> {
  const target = url.replace('//', '//:s3cret-word@');
  const options = { connectTimeout, ...(tls === undefined ? {} : { tls: tls as TlsOptions }) };
  await assert.rejects(connect(target, options), (error: Error & { code: string }) => {
    assert.equal(error.code, code, String(error.stack));
    assert.match(error.message, message);
    const shown = `${error.stack}${JSON.stringify(error)}`;
    for (const secret of [...SECRETS, 's3cret-word']) assert.ok(!shown.includes(secret), shown);
    return true;
  });
}

// No server listens there: wrong arguments are refused before anything is sent.
const NOWHERE = 'rediss://127.0.0.1:1';
const TYPE = 'ERR_INVALID_ARG_TYPE';
const VALUE = 'ERR_INVALID_ARG_VALUE';
const encrypted = String(
  createPrivateKey(mine.key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'x',
  }),
);
const { cert, key } = mine;

const ARGUMENTS: readonly (readonly [string, unknown, string, RegExp])[] = [
  ['options of true', true, TYPE, /options of options\.tls must be an object, got boolean true/],
  ['an unknown option', { Ca: '' }, TYPE, /options\.tls has no option "Ca"; did you mean "ca"/],
  ['a ca of 5', { ca: 5 }, TYPE, /options\.tls\.ca must be PEM.*type number/],
  ['a ca with a number in it', { ca: ['', 5] }, TYPE, /options\.tls\.ca must be PEM/],
  ['a key that is an object', { key: {} }, TYPE, /options\.tls\.key must be PEM/],
  ['a cert that is a list', { cert: [cert] }, TYPE, /options\.tls\.cert must be PEM/],
  ['a servername of 5', { servername: 5 }, TYPE, /servername must be a string, got number 5/],
  ['a text for a boolean', { rejectUnauthorized: 'no' }, TYPE, /must be a boolean, got "no"/],
  ['a ca that is none', { ca: 'nothing' }, VALUE, /options\.tls\.ca holds no certificate/],
  ['no ca at all', { ca: [] }, VALUE, /options\.tls\.ca holds no certificate/],
  ['a key for a ca', { ca: key }, VALUE, /options\.tls\.ca holds no certificate/],
  ['a cert without key', { ca: ca.cert, cert }, VALUE, /options\.tls\.key is missing/],
  ['a key without cert', { ca: ca.cert, key }, VALUE, /options\.tls\.cert is missing/],
  ['cert and key exchanged', { ca: ca.cert, cert: key, key: cert }, VALUE, /cert holds no cert/],
  ['a key that is none', { ca: ca.cert, cert, key: cert }, VALUE, /key holds no private key/],
  ['the key of another', { ca: ca.cert, cert, key: theirs.key }, VALUE, /not the key of cert/],
  ['an encrypted key', { ca: ca.cert, cert, key: encrypted }, VALUE, /key is encrypted.*openssl/],
  ['half a key', { ca: ca.cert, cert, key: key.slice(0, 90) }, VALUE, /options\.tls\.key holds no/],
  ['a servername of two words', { ca: ca.cert, servername: 'a b' }, VALUE, /servername is no host/],
  ['no servername', { ca: ca.cert, servername: '' }, VALUE, /servername is no host/],
];

for (const [what, tls, code, message] of ARGUMENTS) {
  test(`connect: refuses ${what}`, () => refused(NOWHERE, tls, code, message));
}

test('connect: refuses options of TLS for a URL without TLS', async () => {
  const message = /options\.tls needs a URL that begins with rediss:\/\/ or valkeys:\/\//;
  for (const url of ['redis://127.0.0.1:1', 'valkey://127.0.0.1:1']) {
    await refused(url, {}, VALUE, message);
  }
  for (const url of ['unix:///no/such/socket', 'memory:']) {
    await assert.rejects(connect(url, { tls: {} }), { code: VALUE, message });
  }
});

const FAILED = 'ERR_LOCK_CONNECTION';

test('a server whose CA is not trusted', async () => {
  const { url } = await servers.start();
  const message =
    /certificate is not signed by an authority that this client trusts.*options\.tls\.ca/;
  await refused(url, undefined, FAILED, message);
  await refused(url, { ca: stranger.ca.cert }, FAILED, message);
});

test('a server whose certificate has expired', async () => {
  const { url } = await servers.start(authority.issue(NAMES, { days: -1 }));
  await refused(url, { ca: ca.cert }, FAILED, /certificate has expired: renew it/);
});

test('a server whose certificate is for another name', async () => {
  const { url } = await servers.start(authority.issue('DNS:a.test,IP:10.0.0.1'));
  const message = (name: string) =>
    new RegExp(`is not for ${name}, but for a.test, 10.0.0.1.*options\\.tls\\.servername`);
  await refused(url, { ca: ca.cert }, FAILED, message('127.0.0.1'));
  const named = url.replace('127.0.0.1', 'localhost');
  await refused(named, { ca: ca.cert }, FAILED, message('localhost'));
  await refused(url, { ca: ca.cert, servername: 'b.test' }, FAILED, message('b.test'));
});

test('a server that shows the certificate of the CA itself', async () => {
  const { url } = await servers.start(ca);
  await refused(url, { ca: ca.cert }, FAILED, /is not for 127\.0\.0\.1, but for no name at all/);
});

test('a server without TLS, reached with rediss://', async () => {
  const { url } = await servers.startPlain();
  // It waits for the end of what it takes for a line, if the handshake has none by chance.
  const secure = url.replace('redis:', 'rediss:');
  const message = /the server does not speak TLS on this port.*redis:\/\//;
  for (let time = 0; time < 4; time++) {
    await refused(secure, { ca: ca.cert }, FAILED, message, 60_000);
  }
});

test('a server that never answers rediss://', async () => {
  const mute = createServer((socket) => socket.on('error', () => {}).resume());
  await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
  const { port } = mute.address() as AddressInfo;
  const message = /no connection within 700 ms; .* not speak TLS there, use redis:\/\//;
  await refused(`rediss://127.0.0.1:${port}`, { ca: ca.cert }, FAILED, message, 700);
  await new Promise((resolve) => mute.close(resolve));
});

test('a server whose handshake is slow', async () => {
  const { url } = await servers.start();
  const { port } = new URL(url);
  const slow = createServer((socket) => {
    const upstream = dial(Number(port), '127.0.0.1');
    socket.pipe(upstream);
    setTimeout(() => upstream.pipe(socket), 1_000);
    for (const each of [socket, upstream]) each.on('error', () => {});
  });
  await new Promise<void>((resolve) => slow.listen(0, '127.0.0.1', resolve));
  const at = (slow.address() as AddressInfo).port;
  const locks = await connect(`rediss://127.0.0.1:${at}`, { tls: { ca: ca.cert } });
  await locks.close();
  await new Promise((resolve) => slow.close(resolve));
});

test('a server that answers rediss:// with plain text', async () => {
  const rude = createServer((socket) => {
    socket.on('error', () => {});
    socket.resume().end('-ERR unknown command\r\n');
  });
  await new Promise<void>((resolve) => rude.listen(0, '127.0.0.1', resolve));
  const { port } = rude.address() as AddressInfo;
  const message = /the server does not speak TLS on this port.*redis:\/\//;
  await refused(`rediss://127.0.0.1:${port}`, { ca: ca.cert }, FAILED, message);
  await new Promise((resolve) => rude.close(resolve));
});

test('a server of HTTP is named as such', async () => {
  const web = createWebServer((_request, response) => response.end());
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
  const { port } = web.address() as AddressInfo;
  const message = /: an HTTP server answered, not a Redis server: .* Redis clients$/;
  await refused(`redis://127.0.0.1:${port}`, undefined, FAILED, message);
  await new Promise((resolve) => web.close(resolve));
});

test('a server with TLS, reached with redis://', async () => {
  const { url } = await servers.start();
  const message = /if the server expects TLS, use rediss:\/\//;
  await refused(url.replace('rediss:', 'redis:'), undefined, FAILED, message);
});

test('a server that hangs up instead of shaking hands', async () => {
  const rude = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => rude.listen(0, '127.0.0.1', resolve));
  const { port } = rude.address() as AddressInfo;
  const message = /closed the connection|reset.*; if the server does not speak TLS there/;
  await refused(`rediss://127.0.0.1:${port}`, { ca: ca.cert }, FAILED, message);
  await new Promise((resolve) => rude.close(resolve));
});

test('a wrong password over TLS is told as without', async () => {
  const { url } = await servers.start(undefined, { args: ['--requirepass', 'right'] });
  await refused(url, { ca: ca.cert }, 'ERR_LOCK_SERVER', /WRONGPASS/);
});
