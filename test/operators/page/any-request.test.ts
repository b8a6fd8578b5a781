/** No request, whatever its bytes, ends the process that serves the page. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as dial, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { RedisServer } from '../../support/server.js';
import { environment, Running } from '../cli/support.js';

const TOKEN = '0123456789abcdef0123';

let server: RedisServer;
let running: Running;
let port: number;
let cookie: string;

before(async () => {
  server = await RedisServer.start();
  const env = environment(server, { HOLDFAST_UI_TOKEN: TOKEN });
  running = new Running(['ui', '--json', '--allow-release'], env);
  await running.says('"url"');
  port = Number(new URL(JSON.parse(running.stdout).url).port);
  const welcome = await exchange(`GET /?token=${TOKEN} HTTP/1.1\r\nHost: localhost\r\n`);
  cookie = /^set-cookie: ([^;]+)/im.exec(welcome)?.[1] ?? '';
  assert.notEqual(cookie, '');
});

after(async () => {
  running.child.kill('SIGTERM');
  await running.ended;
  await server.stop();
});

/** Sends bytes, and returns what came back until the server or `cut` closed the connection. */
async function send(bytes: Buffer, cut = Number.POSITIVE_INFINITY): Promise<string> {
  const socket = dial(port, '127.0.0.1');
  socket.on('error', () => {});
  let answer = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    answer += chunk;
    // A stream of events has no end of its own.
    if (answer.includes('event: hello')) socket.destroy();
  });
  await once(socket, 'connect');
  socket.write(bytes.subarray(0, cut));
  if (cut < bytes.length) socket.destroy();
  else socket.end();
  if (!socket.closed) await closed(socket);
  return answer;
}

function closed(socket: Socket): Promise<unknown> {
  return new Promise((resolve) => socket.once('close', resolve));
}

function exchange(head: string, body = ''): Promise<string> {
  return send(Buffer.from(`${head}Connection: close\r\n\r\n${body}`, 'latin1'));
}

const statusOf = (answer: string) => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]);

async function assertAlive(): Promise<void> {
  assert.equal(running.child.exitCode, null, running.stderr);
  const answer = await exchange(`GET / HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\n`);
  assert.equal(statusOf(answer), 200, running.stderr);
}

test('a target that is no path is answered 400, and one that is odd like any other', async () => {
  const odd = [
    '//',
    '///',
    '//[',
    '//a:99999/',
    '//%00/',
    '//@',
    '//a%20b',
    '/\\',
    '/%',
    '/?token=%ff',
  ];
  for (const target of odd) {
    const answer = await exchange(`GET ${target} HTTP/1.1\r\nHost: localhost\r\n`);
    assert.equal(statusOf(answer), 401, target);
    const known = await exchange(
      `GET ${target} HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\n`,
    );
    assert.ok([200, 404].includes(statusOf(known)), `${target}: ${known}`);
  }
  for (const request of ['OPTIONS *', 'GET http://localhost/', 'GET http:', 'GET http://']) {
    const answer = await exchange(`${request} HTTP/1.1\r\nHost: localhost\r\n`);
    assert.equal(statusOf(answer), 400, request);
  }
  await assertAlive();
});

test('the token leads to a path of this page only', async () => {
  for (const target of ['//evil.example', '/\\evil.example', '/\\/evil.example']) {
    const answer = await exchange(`GET ${target}?token=${TOKEN} HTTP/1.1\r\nHost: localhost\r\n`);
    assert.equal(statusOf(answer), 303);
    assert.match(answer, /^location: \/evil\.example\r$/im);
  }
});

test('a release without a name of a lock is answered 400', async () => {
  const long = 'x'.repeat(1_025);
  const wrong = [
    '',
    '%',
    '{}',
    'null',
    '{"name":"a"}',
    '{"name":"","holdersId":"x"}',
    '{"name":7,"holdersId":"x"}',
    '{"name":"\\ud800","holdersId":"x"}',
    '{"name":"a:queue","holdersId":"x"}',
    JSON.stringify({ name: long, holdersId: 'x' }),
  ];
  for (const text of wrong) {
    const header = text === '%' ? text : encodeURIComponent(text);
    const answer = await exchange(
      `POST /release HTTP/1.1\r\nHost: localhost\r\nCookie: ${cookie}\r\nholdfast-release: ${header}\r\n`,
    );
    assert.equal(statusOf(answer), 400, text);
  }
});

const letters = fc.string({ unit: 'binary', maxLength: 30 });
const target = fc.oneof(
  fc.constantFrom(
    '/',
    '//',
    '/events',
    '/release',
    '/app.mjs',
    '*',
    '/?token=',
    `/?token=${TOKEN}`,
  ),
  fc.webPath(),
  letters.map((text) => `/${text}`),
  letters,
);
const release = fc.oneof(
  fc.json().map(encodeURIComponent),
  fc
    .record({ name: fc.string(), holdersId: fc.string() })
    .map((wanted) => encodeURIComponent(JSON.stringify(wanted))),
  letters,
);
const header = fc.oneof(
  fc.constantFrom('localhost', '127.0.0.1', '[::1]', '[', 'a b', '').map((host) => `Host: ${host}`),
  fc.constant(() => `Cookie: ${cookie}`),
  release.map((text) => `holdfast-release: ${text}`),
  fc.constantFrom('same-origin', 'cross-site', '').map((site) => `Sec-Fetch-Site: ${site}`),
  letters.map((text) => `Origin: ${text}`),
  fc.nat(40).map((length) => `Content-Length: ${length}`),
  fc.constantFrom('Transfer-Encoding: chunked', 'Expect: 100-continue', 'Upgrade: websocket'),
  fc.tuple(letters, letters).map(([name, value]) => `${name}: ${value}`),
);
const request = fc.record({
  method: fc.constantFrom(
    'GET',
    'GET',
    'POST',
    'POST',
    'HEAD',
    'OPTIONS',
    'PUT',
    'CONNECT',
    'BREW',
  ),
  target,
  named: fc.boolean(),
  known: fc.boolean(),
  headers: fc.array(header, { maxLength: 6 }),
  body: letters,
  cut: fc.option(fc.nat(200), { freq: 4, nil: Number.POSITIVE_INFINITY }),
});

test('any request', async () => {
  const check = fc.asyncProperty(request, async (asked) => {
    const { method, named, known, headers, body, cut } = asked;
    const lines = [
      `${method} ${asked.target} HTTP/1.1`,
      ...(named ? ['Host: localhost'] : []),
      ...(known ? [`Cookie: ${cookie}`] : []),
      ...headers.map((line) => (typeof line === 'function' ? line() : line)),
      'Connection: close',
    ];
    await send(Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`, 'latin1'), cut);
    assert.equal(running.child.exitCode, null, running.stderr);
  });
  await fc.assert(check, { numRuns: 500 });
  await assertAlive();
  assert.equal(running.stderr, '');
});
