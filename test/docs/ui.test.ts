/** What docs/ui.md shows. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { environment, MAIN } from '../operators/cli/support.js';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { needs } from '../support/tools.js';
import type { Block } from './blocks.js';
import { runPage } from './run-page.js';

// The page makes a token with it.
needs('openssl');

const folder = mkdtempSync(join(tmpdir(), 'holdfast-ui-'));
let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
  const source = `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`;
  writeFileSync(join(folder, 'holdfast'), source);
  chmodSync(join(folder, 'holdfast'), 0o755);
});

after(async () => {
  await server?.stop();
  removeFolder(folder);
});

/** Starts the page as the block says, but on a free port and on this machine alone. */
async function starts({ code }: Block): Promise<void> {
  const line = code.trim().replace('--port 7420', '--port 0').replace('0.0.0.0', '127.0.0.1');
  const env = environment(server, { PATH: `${folder}:${process.env['PATH']}` });
  const [, settings = '', command = ''] = /^(\S+=\S*\([^)]*\) )?(.*)$/.exec(line) ?? [];
  const shell = spawn('sh', ['-c', `${settings}exec ${command}`], { env, stdio: 'pipe' });
  const [said] = await once(shell.stdout, 'data');
  assert.match(String(said), /^http:\/\/127\.0\.0\.1:\d+\/\?token=[\w-]{32,}\n/);
  shell.kill('SIGTERM');
  assert.deepEqual(await once(shell, 'exit'), [0, null]);
}

runPage('docs/ui.md', {
  surroundings: () => ({
    env: { REDIS_URL: server.url },
    instead: {},
    stage: 'test/docs/stage.mjs',
  }),
  otherwise: { 'holdfast ui': starts },
});

test('its pictures are there, and small', () => {
  const page = readFileSync(join(ROOT, 'docs', 'ui.md'), 'utf8');
  const named = Array.from(page.matchAll(/images\/[\w-]+\.png/g), ([name]) => name);
  assert.equal(named.length, 3);
  const sizes = named.map((name) => statSync(join(ROOT, 'docs', name)).size);
  assert.ok(Math.max(...sizes) <= 200_000, `${sizes}`);
});
