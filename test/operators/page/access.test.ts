/** Who gets what from the page: tokens, names, other sites, and the apps in which it is mounted. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  createServer,
  get,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { Controller, Get } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import express from 'express';
import fastify from 'fastify';
import type { HeldLockInfo } from 'holdfast';
import { type LockUi, type LockUiOptions, lockUi } from 'holdfast/ui';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { ends, environment, Running } from '../cli/support.js';

const LONG = { ttl: 600_000 };

let server: RedisServer;
let locks: LockManager;
let running: Running;
let url: URL;

before(async () => {
  server = await RedisServer.start();
  running = new Running(['ui', '--json', '--allow-release'], environment(server));
  await running.says('"url"');
  url = new URL(JSON.parse(running.stdout).url);
});

after(async () => {
  running.child.kill('SIGTERM');
  await running.ended;
  await server.stop();
});

beforeEach(async () => {
  locks = await connect(server.url, { label: 'web-1' });
});

afterEach(async () => {
  await locks.close();
  await server.admin.flushall();
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

interface Asked {
  readonly method?: string;
  readonly headers?: Record<string, string>;
}

/** `fetch` sets some of the headers by itself. */
async function ask(
  path: string,
  { method = 'GET', headers = {} }: Asked = {},
  at: URL = url,
): Promise<Answer> {
  const sent = request(new URL(path, at), { method, headers });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}

async function cookie(): Promise<string> {
  const { status, headers } = await ask(`/?token=${url.searchParams.get('token')}`);
  assert.deepEqual([status, headers.location], [303, '/']);
  const [set = ''] = headers['set-cookie'] ?? [];
  assert.match(set, /; HttpOnly; SameSite=Strict$/);
  return set.split(';')[0] ?? '';
}

test('without the token there is nothing, and with it a session that does not tell it', async () => {
  for (const path of ['/', '/app.mjs', '/events', '/release', '/?token=', '/?token=wrong']) {
    const { status, body } = await ask(path);
    assert.equal(status, 401, path);
    assert.match(body, /open the address with the token/);
  }
  const session = await cookie();
  assert.ok(!session.includes(url.searchParams.get('token') ?? ''));
  const { status, body } = await ask('/', { headers: { cookie: session } });
  assert.equal(status, 200);
  assert.match(body, /<table/);
  assert.equal((await ask('/', { headers: { cookie: `${session}x` } })).status, 401);
});

test('a name of somebody else is refused, also with the session: DNS rebinding', async () => {
  const session = await cookie();
  const status = async (host: string) =>
    (await ask('/', { headers: { cookie: session, host } })).status;
  for (const host of [
    'evil.example',
    `evil.example:${url.port}`,
    '127.0.0.1.evil.example',
    'a b',
  ]) {
    assert.notEqual(await status(host), 200, host);
  }
  for (const host of [`127.0.0.1:${url.port}`, `localhost:${url.port}`, '[::1]', '10.0.0.5']) {
    assert.equal(await status(host), 200, host);
  }
});

test('every answer forbids scripts of others, frames, caches and referrers', async () => {
  const session = await cookie();
  const paths = ['/', '/app.mjs', '/style.css'];
  for (const path of paths) {
    const { headers, body } = await ask(path, { headers: { cookie: session } });
    assert.match(`${headers['content-security-policy']}`, /default-src 'none'; script-src 'self';/);
    assert.doesNotMatch(`${headers['content-security-policy']}`, /unsafe/);
    assert.deepEqual(
      [headers['x-frame-options'], headers['referrer-policy'], headers['x-content-type-options']],
      ['DENY', 'no-referrer', 'nosniff'],
    );
    assert.match(headers['cache-control'] ?? '', /no-store/);
    assert.doesNotMatch(body, /\son\w+=|<script>|style="/);
  }
  for (const path of ['/../package.json', '/%2e%2e/package.json', '/nothing']) {
    assert.equal((await ask(path, { headers: { cookie: session } })).status, 404, path);
  }
});

/** The events of a page until one satisfies `enough`. */
async function events(
  at: URL,
  headers: Record<string, string>,
  enough: (text: string) => boolean,
): Promise<string> {
  const sent = get(new URL('events', at), { headers });
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response) {
    text += chunk;
    if (enough(text)) break;
  }
  sent.destroy();
  return text;
}

async function holdersIdOf(
  name: string,
  at: URL,
  headers: Record<string, string>,
): Promise<string> {
  const text = await events(
    at,
    headers,
    (each) => each.includes(JSON.stringify(name)) && each.endsWith('\n\n'),
  );
  const [, state = ''] = /event: state\ndata: (.*)\n/.exec(text) ?? [];
  return JSON.parse(state).rows.find((row: { name: string }) => row.name === name).holdersId;
}

test('the stream has no token of a lock, and a release needs the page itself to ask', async () => {
  const lock = await locks.acquire('job', LONG);
  const session = await cookie();
  const text = await events(url, { cookie: session }, (each) => each.includes('"job"'));
  assert.ok(!text.includes(lock.token), 'with a token anybody could take the lock over');
  const holdersId = await holdersIdOf('job', url, { cookie: session });
  const header = encodeURIComponent(JSON.stringify({ name: 'job', holdersId }));
  const ours = { cookie: session, 'holdfast-release': header };
  const attempts: [number, Asked][] = [
    [401, { method: 'POST', headers: { 'holdfast-release': header } }],
    [405, { method: 'GET', headers: ours }],
    [403, { method: 'POST', headers: { ...ours, 'sec-fetch-site': 'cross-site' } }],
    [403, { method: 'POST', headers: { ...ours, 'sec-fetch-site': 'same-site' } }],
    [403, { method: 'POST', headers: { ...ours, origin: 'http://evil.example' } }],
    [403, { method: 'POST', headers: { ...ours, origin: 'null' } }],
    [400, { method: 'POST', headers: { cookie: session } }],
    [400, { method: 'POST', headers: { ...ours, 'holdfast-release': 'job' } }],
  ];
  for (const [status, asked] of attempts) {
    assert.equal((await ask('/release', asked)).status, status, JSON.stringify(asked));
    assert.equal(lock.held && (await locks.query({ name: 'job' })).held.length, 1);
  }
  const { status } = await ask('/release', {
    method: 'POST',
    headers: { ...ours, origin: url.origin },
  });
  assert.equal(status, 200);
  assert.equal((await locks.query({ name: 'job' })).held.length, 0);
});

/** How an app mounts the page, with a login of its own. */
const MOUNTED: Record<
  string,
  (ui: LockUi, path: string) => Promise<{ at: URL; close(): unknown }>
> = {
  async Express(ui, path) {
    const app = express();
    app.use(express.json());
    app.use(path, (request, response, next) => {
      if (request.headers.authorization === 'Basic b3A6b3A=') next();
      else response.status(401).end();
    });
    app.use(path, ui);
    app.get('/other', (_request, response) => response.status(404).send('of the app'));
    const listening = app.listen(0, '127.0.0.1');
    await once(listening, 'listening');
    return { at: placeOf(listening), close: () => listening.close() };
  },
  async Nest(ui, path) {
    @Controller()
    class Shop {
      @Get('other')
      other(): string {
        return 'of the app';
      }
    }
    const module = { module: class App {}, controllers: [Shop] };
    const app = await NestFactory.create(module, { logger: false });
    const login = (request: IncomingMessage, response: ServerResponse, next: () => void) => {
      if (request.headers.authorization === 'Basic b3A6b3A=') next();
      else response.writeHead(401).end();
    };
    app.use(path, login, ui);
    const listening: Server = await app.listen(0, '127.0.0.1');
    return { at: placeOf(listening), close: () => app.close() };
  },
  async Fastify(ui, path) {
    const app = fastify();
    app.addHook('onRequest', async (request, reply) => {
      if (request.headers.authorization !== 'Basic b3A6b3A=') await reply.code(401).send();
    });
    app.setNotFoundHandler((_request, reply) => reply.code(404).send('of the app'));
    for (const each of [path, `${path}/*`]) {
      app.all(each, (request, reply) => {
        reply.hijack();
        ui(request.raw, reply.raw);
      });
    }
    const at = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
    return { at, close: () => app.close() };
  },
  async 'node:http'(ui, path) {
    const listening = createServer((request, response) => {
      if (request.headers.authorization !== 'Basic b3A6b3A=') response.writeHead(401).end();
      else if (request.url?.startsWith(path)) ui(request, response);
      else response.writeHead(404).end('of the app');
    }).listen(0, '127.0.0.1');
    await once(listening, 'listening');
    return { at: placeOf(listening), close: () => listening.close() };
  },
};

function placeOf(listening: Server): URL {
  return new URL(`http://127.0.0.1:${(listening.address() as AddressInfo).port}`);
}

for (const [framework, mount] of Object.entries(MOUNTED)) {
  test(`mounted in ${framework}: behind the app's login, with a permission for each request`, async () => {
    const given: LockUiOptions = {
      locks,
      title: 'Shop',
      interval: 100,
      allowRelease: ({ headers }) => headers['x-role'] === 'admin',
      ...(['Express', 'Nest'].includes(framework) ? {} : { path: '/admin/locks' }),
    };
    const ui = lockUi(given);
    const { at, close } = await mount(ui, '/admin/locks');
    try {
      const authorization = 'Basic b3A6b3A=';
      const base = new URL('/admin/locks/', at);
      const headers = { authorization };
      assert.equal((await ask('', {}, base)).status, 401);
      const bare = await ask('/admin/locks', { headers }, at);
      const to = new URL(bare.headers.location ?? '', new URL('/admin/locks', at));
      assert.deepEqual([bare.status, to.pathname], [308, '/admin/locks/']);
      assert.match((await ask('', { headers }, base)).body, /<title>Locks/);
      assert.equal((await ask('table.mjs', { headers }, base)).status, 200);
      assert.equal((await ask('nothing', { headers }, base)).status, 404);
      assert.equal((await ask('/other', { headers }, at)).body, 'of the app');
      await locks.acquire('job', LONG);
      const holdersId = await holdersIdOf('job', base, headers);
      const hello = await events(base, { ...headers, 'x-role': 'admin' }, (text) =>
        text.includes('\n\n'),
      );
      assert.match(hello, /"title":"Shop","release":true/);
      const release = {
        ...headers,
        'holdfast-release': JSON.stringify({ name: 'job', holdersId }),
      };
      const refused = await ask('release', { method: 'POST', headers: release }, base);
      assert.equal(refused.status, 403);
      assert.equal((await locks.query({ name: 'job' })).held.length, 1);
      const admin = { ...release, 'x-role': 'admin' };
      assert.equal((await ask('release', { method: 'POST', headers: admin }, base)).status, 200);
      assert.equal((await locks.query({ name: 'job' })).held.length, 0);
    } finally {
      ui.close();
      await close();
    }
  });
}

function heldInfo(i: number): HeldLockInfo {
  const name = `${'x'.repeat(1_000)}${i}`;
  const owner = { clientId: 'c', owner: null, label: null, token: `hf1.c.${i}` };
  const hold = { mode: 'exclusive', state: 'held', result: false, idleFor: null } as const;
  const share = { permits: 1, limit: null };
  return { name, ...hold, ...share, ...owner, askedAt: null, fence: null, ttl: 60_000 };
}

test('a page that does not read costs no memory, and gets the whole state when it reads again', async () => {
  // More locks than the sockets of both sides hold.
  const held = Array.from({ length: 6_500 }, (_, i) => heldInfo(i));
  let looks = 0;
  const query = async () => {
    looks += 1;
    return { held, pending: [] };
  };
  const ui = lockUi({ locks: { query, once() {}, off() {} } as never, interval: 100 });
  const listening = createServer((request, response) => ui(request, response)).listen(
    0,
    '127.0.0.1',
  );
  const sockets: Socket[] = [];
  listening.on('connection', (socket) => sockets.push(socket));
  await once(listening, 'listening');
  try {
    const sent = get(new URL('/events', placeOf(listening)));
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.pause();
    const queued = () => sockets[0]?.writableLength ?? 0;
    await until(() => queued() > 0, 'a state that waits for its reader');
    const before = queued();
    for (let i = 0; i < 500; i++) held.push(heldInfo(held.length));
    const known = looks;
    await until(() => looks >= known + 2, 'more looks', 60_000);
    assert.ok(queued() <= before, `${queued()} bytes wait, before ${before}`);
    let text = '';
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      text += chunk;
    });
    response.resume();
    await until(() => text.includes(heldInfo(6_999).name), 'the new locks', 60_000);
    assert.equal(text.match(/^event: state$/gm)?.length, 2);
    sent.destroy();
    // Nobody looks at a page that nobody has open.
    await until(() => sockets[0]?.destroyed === true, 'the end of the connection');
  } finally {
    ui.close();
    listening.close();
  }
});

/** The page in this process. */
async function serve(
  options: Partial<LockUiOptions>,
): Promise<{ at: URL; sockets: Socket[]; close(): void }> {
  const ui = lockUi({ locks, ...options });
  const sockets: Socket[] = [];
  const listening = createServer((request, response) => ui(request, response));
  listening.on('connection', (socket) => sockets.push(socket));
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const close = () => {
    ui.close();
    listening.close();
    listening.closeAllConnections();
  };
  return { at: placeOf(listening), sockets, close };
}

test('a release takes the lock from nobody who was not shown, however late the request is', async () => {
  const other = await connect(server.url, { label: 'web-2' });
  let arrived = () => {};
  let go = () => {};
  const looked = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  // The page looks who holds the lock, and releases it; the lock changes hands between the two.
  const late = new Proxy(locks, {
    get(manager, name) {
      const value = Reflect.get(manager, name, manager);
      if (typeof value !== 'function') return value;
      if (name !== 'forceRelease') return value.bind(manager);
      return async (...args: Parameters<LockManager['forceRelease']>) => {
        arrived();
        await new Promise<void>((resolve) => {
          go = resolve;
        });
        return manager.forceRelease(...args);
      };
    },
  });
  const page = await serve({ locks: late, allowRelease: true });
  try {
    const lock = await locks.acquire('job', LONG);
    const next = other.acquire('job', LONG);
    const holdersId = await holdersIdOf('job', page.at, {});
    const headers = { 'holdfast-release': JSON.stringify({ name: 'job', holdersId }) };
    const answered = ask('/release', { method: 'POST', headers }, page.at);
    await looked;
    await lock.release();
    const theirs = await next;
    go();
    const { status, body } = await answered;
    assert.deepEqual([status, JSON.parse(body).title], [409, 'Another holder']);
    assert.equal((await other.query({ name: 'job' })).held[0]?.token, theirs.token);
  } finally {
    page.close();
    await other.close();
  }
});

test('an error of the app is not shown to who asks', async (t) => {
  t.mock.method(process, 'emitWarning', () => {});
  for (const thrown of [new Error('password of the database'), null, 'password']) {
    const page = await serve({
      allowRelease: () => {
        throw thrown;
      },
    });
    const { status, body } = await ask('/events', {}, page.at);
    assert.equal(status, 500);
    assert.doesNotMatch(body, /password/);
    page.close();
  }
});

test('so many pages may be open, and one that does not read is closed', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const held = Array.from({ length: 6_500 }, (_, i) => heldInfo(i));
  const query = async () => ({ held, pending: [] });
  const page = await serve({ locks: { query, once() {}, off() {} } as never });
  try {
    const open = async () => {
      const sent = get(new URL('/events', page.at));
      sent.on('error', () => {});
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      response.on('error', () => {});
      return response;
    };
    await open();
    const [deaf] = page.sockets;
    const pages: IncomingMessage[] = [];
    for (let i = 1; i < 100; i++) pages.push((await open()).resume());
    const last = await open();
    assert.deepEqual([last.statusCode, last.headers['retry-after']], [503, '30']);
    last.resume();
    for (const each of pages.slice(1)) each.destroy();
    await until(() => (deaf?.writableLength ?? 0) > 0, 'a state that waits for its reader');
    t.mock.timers.tick(30_000);
    assert.equal(deaf?.destroyed, false);
    t.mock.timers.tick(15_000);
    await until(() => deaf?.destroyed === true, 'the end of the stream that nobody reads');
    assert.equal(pages[0]?.destroyed, false);
  } finally {
    page.close();
  }
});

test('the command says where the page is, what it can do, and who may reach it', async () => {
  const token = 'x'.repeat(16);
  const env = { ...environment(server), HOLDFAST_UI_TOKEN: token };
  for (const [does, reached, ...args] of [
    ['It only shows locks.', ''],
    ['It can release locks.', '', '--allow-release'],
    [
      'It only shows locks.',
      /^holdfast: other machines can reach the page, .* unencrypted: use a proxy with TLS\n$/,
      ...['--host', '0.0.0.0'],
    ],
  ] as const) {
    const shown = new Running(['ui', ...args], env);
    await shown.says('Ctrl-C ends it');
    shown.child.kill('SIGINT');
    const { code, stdout, stderr } = await shown.ended;
    assert.equal(code, 0, stderr);
    const [address, after] = stdout.split('\n');
    assert.match(address ?? '', new RegExp(`^http://127\\.0\\.0\\.1:\\d+/\\?token=${token}$`));
    assert.equal(after, `${does} Ctrl-C ends it.`);
    if (reached === '') assert.equal(stderr, '');
    else assert.match(stderr, reached);
  }
});

test('wrong options, a quorum and a port that is taken are told at once', async () => {
  assert.throws(() => lockUi({} as never), /lockUi needs the option "locks"/);
  assert.throws(
    () => lockUi({ locks, interval: 5 }),
    /"interval" must be whole ms, 100 to 3600000/,
  );
  assert.throws(() => lockUi({ locks, allowRelease: 'yes' as never }), /"allowRelease"/);
  const env = environment(server);
  const taken = await ends(69, env, 'ui', '--port', url.port);
  assert.match(taken.stderr, /cannot listen on 127\.0\.0\.1, port \d+: it is taken/);
  const weak = await ends(64, { ...env, HOLDFAST_UI_TOKEN: 'short' }, 'ui');
  assert.match(weak.stderr, /HOLDFAST_UI_TOKEN must have 16 characters or more/);
  const quorum = [1, 2, 3].flatMap(() => ['--quorum', server.url]);
  const { stderr } = await ends(64, env, 'ui', ...quorum.slice(0, 2));
  assert.match(stderr, /quorum/);
});
