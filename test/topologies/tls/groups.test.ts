/** Which groups a server may allow for the exchange of keys: the hybrid one too, which is safe from quantum computers. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, test } from 'node:test';
import { nodeOf } from '../../support/fetched.js';
import { connect, openOperations } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { NAMES, newAuthority } from './support.js';

/** The first with an OpenSSL (3.5) that has hybrid groups. */
const MAJOR = 24;

/** TLS in front of a server: the port of Redis, the options of `createServer`. It prints its own port. */
const PROGRAM = `
  const [, redis, options] = process.argv
  const server = require('node:tls').createServer(JSON.parse(options), (socket) => {
    const upstream = require('node:net').connect(Number(redis), '127.0.0.1')
    socket.pipe(upstream).pipe(socket)
    for (const each of [socket, upstream]) each.on('error', () => {})
  })
  server.listen(0, '127.0.0.1', () => console.log(server.address().port))`;

const authority = newAuthority();
const { cert, key } = authority.issue(NAMES);
const fronts: ChildProcess[] = [];
let redis: RedisServer;
let node: string;

before(async () => {
  [redis, node] = await Promise.all([RedisServer.start(), nodeOf(MAJOR)]);
});

afterEach(() => {
  for (const front of fronts.splice(0)) front.kill('SIGKILL');
});

after(async () => {
  await redis.stop();
  assert.equal(openOperations(), 0);
});

/** The URL of a server that allows what `options` say alone. */
async function front(options: Readonly<Record<string, string>>): Promise<string> {
  const args = ['-e', PROGRAM, '--', `${redis.port}`, JSON.stringify({ cert, key, ...options })];
  const child = spawn(node, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  fronts.push(child);
  const [port] = await once(child.stdout, 'data');
  return `rediss://localhost:${Number(port)}`;
}

for (const [what, options] of Object.entries({
  'the hybrid group alone': { ecdhCurve: 'X25519MLKEM768', minVersion: 'TLSv1.3' },
  'the hybrid group first': { ecdhCurve: 'X25519MLKEM768:X25519:P-256' },
  'X25519 alone, whose key comes beside the hybrid one': { ecdhCurve: 'X25519' },
  'P-384 alone, which it asks for': { ecdhCurve: 'P-384', minVersion: 'TLSv1.3' },
  'TLS 1.2, which has no hybrid group': { maxVersion: 'TLSv1.2' },
})) {
  test(`a server that allows ${what}`, async () => {
    const locks = await connect(await front(options), { tls: { ca: authority.ca.cert } });
    const lock = await locks.acquire('a');
    assert.equal(await lock.release(), true);
    await locks.close();
  });
}

test('a server that allows another hybrid group alone is told of in the error', async () => {
  const url = await front({ ecdhCurve: 'SecP256r1MLKEM768', minVersion: 'TLSv1.3' });
  await assert.rejects(connect(url, { tls: { ca: authority.ca.cert } }), {
    code: 'ERR_LOCK_CONNECTION',
    message: /refused the TLS handshake: .* or another cipher suite or group/,
  });
});
