/** What a machine lacks is known before a test runs, and is named. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { ROOT } from './child.js';
import { removeFolder } from './folders.js';
import { lackingFor, needs } from './tools.js';

const COMPILED = join(ROOT, 'build', 'test');

const { env } = process;

// A machine with nothing but this Node.
beforeEach(() => {
  const others = Object.entries(env).filter(([name]) => !/^(HOLDFAST_|NODE_TEST)/.test(name));
  process.env = { ...Object.fromEntries(others), PATH: '' };
});

afterEach(() => {
  process.env = env;
});

function lacks(file: string): string[] {
  return lackingFor(join(COMPILED, `${file}.test.js`)).map(({ name }) => name);
}

test('a test needs what the modules declare that it loads, or runs as programs', () => {
  assert.deepEqual(lacks('behaviour/conformance/embedded'), []);
  assert.deepEqual(lacks('behaviour/fence'), ['Redis or Valkey']);
  assert.deepEqual(lacks('metrics/monitoring').sort(), ['Prometheus', 'Redis or Valkey']);
  assert.ok(lacks('faults/dns').includes('OpenSSL'), 'its program makes certificates');
});

test('what is missing is named with the command that installs it', () => {
  assert.throws(
    () => needs('prometheus'),
    /needs Prometheus \(Debian: apt-get install prometheus; /,
  );
  process.env['HOLDFAST_REDIS_SERVER'] = '/nowhere';
  assert.throws(
    () => needs('redis'),
    /HOLDFAST_REDIS_SERVER is \/nowhere: no Redis or Valkey there/,
  );
});

test('a variable names the program, or its folder', async () => {
  const { findServerBinary } = await import(join(ROOT, 'scripts', 'redis-server.mjs'));
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-'));
  const program = join(folder, 'valkey-server');
  writeFileSync(program, '');
  try {
    for (const place of [program, folder]) {
      process.env['HOLDFAST_REDIS_SERVER'] = place;
      assert.equal(needs('redis')(), program);
      assert.equal(findServerBinary(process.env), program);
    }
    process.env['HOLDFAST_REDIS_SERVER'] = ROOT;
    assert.throws(() => needs('redis'), /no Redis or Valkey there/);
    assert.throws(() => findServerBinary(process.env), /names no server/);
  } finally {
    removeFolder(folder);
  }
});

test('the runner leaves out the files that need what is missing, and names them at its end', () => {
  const args = ['scripts/test.mjs', '--quick', '--test-name-pattern=nothing'];
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, stdout);
  const end =
    /\nleft out:\n {2}a file needs Redis or Valkey \(Debian: apt-get install redis-server; .*\): (.*)\n$/;
  assert.equal(end.exec(stdout)?.[1], 'behaviour/conformance/conformance');
});
