/** `fetchLockUi`: the page as a handler of the Fetch API, by itself, in Hono, and in Bun and Deno. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { createAdaptorServer } from '@hono/node-server';
import { fetchLockUi } from 'holdfast/ui';
import { Hono } from 'hono';
import { ROOT, run } from '../../support/child.js';
import { fetched } from '../../support/fetched.js';
import { removeFolder } from '../../support/folders.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

const BASE = 'http://localhost/admin/locks/';
const LONG = { ttl: 600_000 };

let locks: LockManager;

before(async () => {
  locks = await connect('memory:', { label: 'web-1' });
});

after(() => locks.close());

afterEach(async () => {
  for (const { name } of (await locks.query()).held) await locks.forceRelease(name);
});

type Ask = (path: string, init?: RequestInit) => Promise<Response>;

/** Reads the events of a page until one of `kind`, and returns its data. */
async function eventOf(answer: Response, kind: string, leave: () => void = () => {}) {
  const reader = answer.body?.getReader() ?? assert.fail();
  let text = '';
  for (;;) {
    const found = new RegExp(`^event: ${kind}\\ndata: (.*)\\n\\n`, 'm').exec(text)?.[1];
    if (found !== undefined) {
      leave();
      await reader.cancel().catch(() => {});
      return JSON.parse(found);
    }
    const { done, value } = await reader.read();
    assert.equal(done, false, text);
    text += Buffer.from(value ?? []).toString();
  }
}

/** What is used of a row. */
interface Shown {
  readonly name: string;
  readonly holders: readonly { state: string; result: boolean; label: string | null }[];
}

/** What the page promises, whatever serves it. */
async function judge(ask: Ask): Promise<void> {
  const bare = await ask('', { redirect: 'manual' });
  assert.deepEqual([bare.status, bare.headers.get('location')], [308, './locks/']);
  const page = await ask('/');
  assert.match(await page.text(), /<table/);
  assert.match(page.headers.get('content-security-policy') ?? '', /default-src 'none'/);
  for (const name of ['app.mjs', 'shared.mjs', 'style.css']) {
    assert.equal((await ask(`/${name}`)).status, 200, name);
  }
  assert.equal((await ask('/none.css')).status, 404);
  assert.equal((await ask('/', { method: 'PUT' })).status, 405);
  await locks.acquire('job', LONG);
  await locks.runOnce('bill', { slot: 'may', keepResult: true }, () => 7);
  assert.equal((await eventOf(await ask('/events'), 'hello')).release, false);
  const { rows } = await eventOf(await ask('/events', ADMIN), 'state');
  assert.deepEqual(
    rows.map(({ name, holders: [holder] }: Shown) => [
      name,
      holder?.state,
      holder?.result,
      holder?.label,
    ]),
    [
      ['job', 'held', false, 'web-1'],
      ['once:bill@may', 'done', true, 'web-1'],
    ],
  );
  const { holdersId } = rows[0];
  const release = (more: Record<string, string>) => {
    const named = encodeURIComponent(JSON.stringify({ name: 'job', holdersId }));
    const headers = { 'holdfast-release': named, ...more };
    return ask('/release', { method: 'POST', headers });
  };
  assert.equal((await release({})).status, 403, 'not an admin');
  const admin = { 'x-role': 'admin' };
  for (const elsewhere of [{ origin: 'http://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
    assert.equal((await release({ ...admin, ...elsewhere })).status, 403);
  }
  assert.equal((await locks.query({ name: 'job' })).held.length, 1);
  assert.deepEqual(await (await release(admin)).json(), { released: true });
  assert.equal((await locks.query({ name: 'job' })).held.length, 0);
  assert.equal((await release(admin)).status, 409);
}

const ADMIN = { headers: { 'x-role': 'admin' } };
const allowRelease = ({ headers }: Request) => headers.get('x-role') === 'admin';
const OPTIONS = { path: '/admin/locks', allowRelease, interval: 100 };

test('a handler by itself: files, events, and a release for whom it is allowed', async () => {
  const ui = fetchLockUi({ locks, ...OPTIONS });
  await judge((path, init) => ui(new Request(BASE.slice(0, -1) + path, init)));
  ui.close();
});

/** A manager that counts how often the page looks, and that `close` closes. */
function counted(): { locks: LockManager; looks(): number; close(): void } {
  let looks = 0;
  const events = new EventEmitter();
  const query = async () => {
    looks += 1;
    return { held: [], pending: [] };
  };
  return {
    locks: Object.assign(events, { query }) as never,
    looks: () => looks,
    close: () => void events.emit('close'),
  };
}

test('a client that leaves ends its stream, by an abort and by a cancel; so does close, also of the manager', async () => {
  for (const how of ['abort', 'cancel', 'close', 'close of the manager'] as const) {
    const { locks: looked, looks, close } = counted();
    const ui = fetchLockUi({ locks: looked, ...OPTIONS });
    const left = new AbortController();
    const answer = await ui(new Request(`${BASE}events`, { signal: left.signal }));
    const reader = answer.body?.getReader() ?? assert.fail();
    await until(() => looks() > 1, 'looks');
    if (how === 'cancel') await reader.cancel();
    else if (how === 'abort') left.abort();
    else if (how === 'close') ui.close();
    else close();
    for (;;) if ((await reader.read()).done) break;
    const [before, again] = [looks(), counted()];
    const other = fetchLockUi({ locks: again.locks, ...OPTIONS });
    const second = await other(new Request(`${BASE}events`));
    await until(() => again.looks() > 3, 'looks of another page');
    assert.ok(looks() <= before + 1, 'nobody looks at a page that nobody has open');
    await second.body?.cancel();
    other.close();
  }
});

test('an hour after the last page nobody looks, and the next page tells that', async (t) => {
  const began = performance.now();
  // The process is older than what the history keeps.
  let later = 7_200_000;
  t.mock.method(performance, 'now', () => began + later);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { locks: looked, looks } = counted();
  const ui = fetchLockUi({ locks: looked, ...OPTIONS });
  const pass = async (ms: number) => {
    later += ms;
    t.mock.timers.tick(ms);
    await new Promise(setImmediate);
  };
  const page = async () => eventOf(await ui(new Request(`${BASE}events`)), 'state');
  assert.deepEqual((await page()).gaps, []);
  await new Promise(setImmediate);
  const first = looks();
  for (let i = 1; i <= 3; i++) await pass(5 * OPTIONS.interval);
  assert.equal(looks(), first + 3, 'the history goes on, at a fifth of the pace');
  await pass(3_600_000);
  const last = looks();
  for (let i = 1; i <= 3; i++) await pass(3_600_000);
  assert.equal(looks(), last);
  assert.equal((await page()).gaps.length, 1);
  assert.equal(looks(), last + 1);
  ui.close();
});

test('a process may end once its last page is closed, however seldom it looks', async () => {
  const { code, stdout, stderr } = await run(`
    import { connect } from 'holdfast';
    import { fetchLockUi } from 'holdfast/ui';
    const locks = await connect('memory:');
    const ui = fetchLockUi({ locks, path: '/locks', interval: 3_600_000 });
    const left = new AbortController();
    const asked = new Request('http://localhost/locks/events', { signal: left.signal });
    const reader = (await ui(asked)).body.getReader();
    let text = '';
    while (!/^event: state\\n/m.test(text)) text += Buffer.from((await reader.read()).value ?? []);
    // The look is over, and the next is an hour away.
    const isPlanned = () => process.getActiveResourcesInfo().includes('Timeout');
    while (!isPlanned()) await new Promise(setImmediate);
    left.abort();
    console.log('left');
    setTimeout(() => process.exit(1), 10_000).unref();
  `);
  assert.deepEqual([code, stdout], [0, 'left\n'], stderr);
});

test('a client that has gone before the answer leaves no stream', async () => {
  const { locks: looked } = counted();
  const ui = fetchLockUi({ locks: looked, ...OPTIONS });
  const answer = await ui(new Request(`${BASE}events`, { signal: AbortSignal.abort() }));
  assert.match(await answer.text(), /^event: hello/);
  await assert.rejects(
    async () => fetchLockUi({} as never),
    /fetchLockUi needs the option "locks"/,
  );
});

test('what allowRelease throws goes to the framework', async () => {
  const ui = fetchLockUi({
    ...{ locks, path: '/admin/locks' },
    allowRelease: () => {
      throw new Error('no session');
    },
  });
  await assert.rejects(ui(new Request(`${BASE}events`)), /no session/);
  ui.close();
});

test('Hono: the same over the network, and a client that leaves ends its stream', async () => {
  const app = new Hono();
  const ui = fetchLockUi({ locks, ...OPTIONS });
  app.all('/admin/locks/*', (c) => ui(c.req.raw));
  const counting = counted();
  const other = fetchLockUi({ locks: counting.locks, path: '/other', interval: 100 });
  app.all('/other/*', (c) => other(c.req.raw));
  const server = createAdaptorServer({ fetch: app.fetch }) as Server;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await judge((path, init) => fetch(`${at}/admin/locks${path}`, init));
    const left = new AbortController();
    await eventOf(await fetch(`${at}/other/events`, { signal: left.signal }), 'state', () =>
      left.abort(),
    );
    let [known, still] = [-1, 0];
    const quiet = () => {
      still = counting.looks() === known ? still + 1 : 0;
      known = counting.looks();
      return still > 20;
    };
    await until(quiet, 'the page to look no more');
  } finally {
    ui.close();
    other.close();
    server.closeAllConnections();
    server.close();
  }
});

/** A program that serves the page by a runtime's own server, tells its port, and ends when its input does. */
const SERVE = `
import { createRequire } from 'node:module';
import process from 'node:process';
const require = createRequire(${JSON.stringify(join(ROOT, 'dist', 'index.js'))});
const { connect } = require('./index.js');
const { fetchLockUi } = require('./operators/page/index.js');
process.stdin.on('end', () => process.exit()).resume();
const locks = await connect('memory:', { label: 'there' });
await locks.acquire('job', { ttl: 600_000 });
const ui = fetchLockUi({ locks, path: '/admin/locks', interval: 100, allowRelease: true });
if (typeof Bun === 'object') {
  console.log(Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: ui }).port);
} else {
  const onListen = ({ port }) => console.log(port);
  Deno.serve({ port: 0, hostname: '127.0.0.1', onListen }, ui);
}
`;

for (const [name, spec, program, flags] of [
  ['Bun', 'bun@1', 'bin/bun', []],
  ['Deno', 'deno@2', 'deno', ['run', '--allow-all']],
] as const) {
  test(`${name} serves the page, its events and a release`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-ui-'));
    t.after(() => removeFolder(folder));
    const file = join(folder, 'serve.mjs');
    writeFileSync(file, SERVE);
    const child: ChildProcess = spawn(await fetched(spec, program), [...flags, file], {
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    t.after(async () => {
      child.stdin?.end();
      await once(child, 'exit');
    });
    let said = '';
    child.stdout?.on('data', (text) => {
      said += text;
    });
    await until(() => /^\d+\n/.test(said), 'its port');
    const ask: Ask = (path, init) =>
      fetch(`http://127.0.0.1:${Number.parseInt(said, 10)}/admin/locks${path}`, init);
    assert.match(await (await ask('/')).text(), /<table/);
    const { rows } = await eventOf(await ask('/events'), 'state');
    const named = encodeURIComponent(JSON.stringify({ name: 'job', holdersId: rows[0].holdersId }));
    const headers = { 'holdfast-release': named };
    assert.equal((await ask('/release', { method: 'POST', headers })).status, 200);
    assert.deepEqual((await eventOf(await ask('/events'), 'state')).rows, []);
  });
}
