/** The route handler of Next.js, called as Next calls it: Next itself compiles it, as this test does. */

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import ts from 'typescript';
import { ROOT } from '../../support/child.js';
import { removeFolder } from '../../support/folders.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

const FILES = ['app/reports/[id]/route', 'lib/locks'];
const BUILT = join(ROOT, 'build', 'nextjs');

let server: RedisServer;
let locks: LockManager;
let POST: (request: Request, context: { params: Promise<{ id: string }> }) => Promise<Response>;

before(async () => {
  server = await RedisServer.start();
  locks = await connect(server.url);
  Object.assign(process.env, { REDIS_URL: server.url, WAIT_MS: '60000' });
  for (const file of FILES) {
    const code = readFileSync(join(ROOT, 'examples', 'nextjs', `${file}.ts`), 'utf8');
    const compilerOptions = { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 };
    mkdirSync(dirname(join(BUILT, file)), { recursive: true });
    writeFileSync(
      join(BUILT, `${file}.js`),
      ts.transpileModule(code, { compilerOptions }).outputText,
    );
  }
  ({ POST } = require(join(BUILT, FILES[0] ?? '')));
});

after(async () => {
  const { locks: ofRoute } = globalThis as { locks?: Promise<LockManager> };
  await (await ofRoute)?.close();
  await locks?.close();
  await server?.stop();
  removeFolder(BUILT);
});

function post(id: string, signal: AbortSignal = new AbortController().signal): Promise<Response> {
  const request = new Request(`http://127.0.0.1/reports/${id}`, { method: 'POST', signal });
  return POST(request, { params: Promise.resolve({ id }) });
}

const waiters = async () => (await locks.query()).pending.length;

test('requests for one report run one after another, over one connection', async () => {
  const answers = await Promise.all([1, 2, 3].map(() => post('7')));
  const reports = await Promise.all(
    answers.map(async (each) => (await each.json()) as { lines: number; fence: number }),
  );
  assert.deepEqual(
    reports.map(({ lines }) => lines),
    [3, 3, 3],
  );
  assert.equal(new Set(reports.map(({ fence }) => fence)).size, 3);
  assert.equal((await locks.query()).held.length, 0);
});

test('a client that disconnects leaves the queue, and one that cannot wait is told so', async () => {
  const held = await locks.acquire('report:8');
  const gone = new AbortController();
  const left = assert.rejects(post('8', gone.signal), { name: 'AbortError' });
  await until(async () => (await waiters()) === 1, 'the request to wait');
  gone.abort();
  await left;
  await until(async () => (await waiters()) === 0, 'the request to leave the queue');
  process.env['WAIT_MS'] = '1';
  const busy = await post('8');
  assert.deepEqual([busy.status, await busy.json()], [503, { error: 'busy: try again' }]);
  await held.release();
});
