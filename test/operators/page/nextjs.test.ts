/** Route handlers of Next.js, run by Next itself: the page and idempotency. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { fetchedFolder } from '../../support/fetched.js';
import { removeFolder } from '../../support/folders.js';
import { until } from '../../support/wait.js';

const FILES = {
  'package.json': '{"private":true}',
  'next.config.mjs':
    "export default { serverExternalPackages: ['holdfast'], skipTrailingSlashRedirect: true, turbopack: { root: process.env.ROOT } }",
  'app/layout.js':
    'export default function Layout({ children }) { return <html><body>{children}</body></html> }',
  'lib/locks.js': `import { connect } from 'holdfast'
globalThis.locks ??= connect('memory:')
export const locks = globalThis.locks`,
  'app/admin/locks/[[...file]]/route.js': `import { fetchLockUi } from 'holdfast/ui'
import { locks } from '../../../../lib/locks.js'
globalThis.ui ??= locks.then((locks) => fetchLockUi({ locks, path: '/admin/locks' }))
export const GET = async (request) => (await globalThis.ui)(request)
export const POST = GET`,
  'app/payments/route.js': `import { fetchIdempotency, memoryStore } from 'holdfast/idempotency'
import { locks } from '../../lib/locks.js'
globalThis.idempotent ??= locks.then((locks) => fetchIdempotency({ locks, store: memoryStore() }))
let paid = 0
export const POST = async (request) =>
  (await globalThis.idempotent)(request, async () => Response.json([++paid, await request.json()]))`,
};

/** A folder with the app, inside that of Next, so that Next is found. */
function makeApp(packages: string): string {
  const folder = mkdtempSync(join(packages, 'app-'));
  for (const [file, text] of Object.entries(FILES)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  const own = join(folder, 'node_modules', 'holdfast');
  for (const part of ['dist', 'native', 'package.json']) {
    cpSync(join(ROOT, part), join(own, part), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules', 'croner'), join(folder, 'node_modules', 'croner'));
  return folder;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

test('Next.js serves the page, its events, and a payment once', async (t) => {
  const packages = await fetchedFolder('next@16', 'react@19', 'react-dom@19');
  const folder = makeApp(packages);
  t.after(() => removeFolder(folder));
  const port = await freePort();
  const next = join(packages, 'node_modules', 'next', 'dist', 'bin', 'next');
  const child = spawn(process.execPath, [next, 'dev', '-H', '127.0.0.1', '-p', `${port}`], {
    cwd: folder,
    env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1', ROOT: packages },
    stdio: 'ignore',
  });
  t.after(async () => {
    child.kill('SIGTERM');
    await once(child, 'exit');
  });
  const at = `http://127.0.0.1:${port}`;
  const page = () => fetch(`${at}/admin/locks/`).catch(() => undefined);
  await until(async () => (await page())?.status === 200, 'the page', 120_000);
  const bare = await fetch(`${at}/admin/locks`);
  assert.equal(bare.url, `${at}/admin/locks/`);
  for (const name of ['app.mjs', 'shared.mjs', 'style.css']) {
    assert.equal((await fetch(`${at}/admin/locks/${name}`)).status, 200, name);
  }
  const events = await fetch(`${at}/admin/locks/events`);
  const reader = events.body?.getReader() ?? assert.fail();
  const { value } = await reader.read();
  assert.match(Buffer.from(value ?? []).toString(), /^event: hello/);
  await reader.cancel();
  const pay = async () => {
    const headers = { 'idempotency-key': 'a', 'content-type': 'application/json' };
    const answer = await fetch(`${at}/payments`, { method: 'POST', headers, body: '5' });
    return [answer.headers.get('idempotency-replayed'), await answer.json()];
  };
  assert.deepEqual(
    [await pay(), await pay()],
    [
      [null, [1, 5]],
      ['true', [1, 5]],
    ],
  );
});
