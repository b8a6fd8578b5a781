/** The command line at a terminal of 80 columns, with names as Kubernetes makes them. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { environment, holdfast } from './support.js';
import { Terminal } from './terminal.js';

const POD = 'checkout-worker-6d5f8c9b7d-x2x7k.checkout.svc.cluster.local';
const LONG = `import:${'x'.repeat(116)}:2026-11`;

const server = serverOfFile();
let locks: LockManager;
let terminal: Terminal;

beforeEach(async () => {
  locks = await connect(server.url, { ttl: 60_000 });
  terminal = new Terminal(environment(server));
  terminal.resize(80, 30);
  await terminal.shows(/^\$/m);
  await locks.acquire('order:42', { label: `${POD}.1` });
  await locks.acquire(LONG, { label: `${POD}.2` });
  void locks.acquire('order:42', { label: `${POD}.3` }).catch(() => {});
});

afterEach(async () => {
  terminal.close();
  await locks.close();
  await server.admin.flushall();
});

test('watch keeps the columns that matter, and each lock its name, with both its ends', async () => {
  terminal.holdfast('watch', '--interval', '20ms');
  const heads = 'NAME +HOLDER +HELD +LEASE +WAITING +CHANGES +WAITED';
  await terminal.shows(new RegExp(`^${heads}\\nimport:.*….*-11 `, 'm'));
  await terminal.shows(/^order:42 +checkout.*…\S*\.1 +\S.* 1 +0 +\S+s$/m);
  terminal.resize(160, 30);
  await terminal.shows(/^NAME +MODE +HOLDER +FENCE .* WAITERS$/m);
});

test('ls writes a line for each lock, and show and doctor break lines at words', async () => {
  terminal.holdfast('ls');
  await terminal.shows(/^import:.*…\S*-11 .*\norder:42 .*\n\$/m);
  await terminal.clear();
  terminal.holdfast('show', 'order:42');
  await terminal.shows(/^HOLDER +.*LEASE\n.*\n\nPOSITION .*\n1 .*\n\$/m);
  await terminal.clear();
  terminal.resize(80, 100);
  terminal.holdfast('doctor', '--url', 'redis://127.0.0.1:1');
  await terminal.shows(/to fix/);
  const [whole] = [terminal.screen().replaceAll(/\s+/g, ' ')];
  assert.match(whole, /make sure that it runs, and that host, port, TLS and login are right/);
});

test('the help breaks lines at words', async () => {
  terminal.resize(80, 100);
  terminal.holdfast('help', 'ls');
  await terminal.shows(/who leads/);
  assert.match(
    terminal.screen().replaceAll(/\s*\n\s*/g, ' '),
    /something to fix \(doctor, also if it reaches no server; migrate --fail-on\)/,
  );
});

test('run --if-available names the holder', async () => {
  terminal.resize(200, 30);
  terminal.holdfast('run', 'order:42', '--if-available', '--', 'true');
  await terminal.shows(/lock "order:42" is not free: it is held by checkout\S+\.1, lease \S+s/);
});

test('show of a semaphore tells the permits of holders and waiters', async () => {
  const permit = { mode: 'shared', limit: 3 } as const;
  await locks.acquire('api', { ...permit, permits: 2, label: 'a' });
  void locks.acquire('api', { ...permit, permits: 3, label: 'b' }).catch(() => {});
  terminal.resize(160, 30);
  await terminal.clear();
  terminal.holdfast('show', 'api');
  await terminal.shows(
    /^HOLDER +PERMITS .*\na +2 .*\n\nPOSITION +WAITED +MODE +PERMITS .*\n1 +\S+ +shared +3 +b /m,
  );
});

test('the help of every command has lines of 80 columns, through a pipe too', async () => {
  const { stdout: help } = await holdfast(environment(), '--help');
  const commands = [...help.matchAll(/^ {2}((?!help)[a-z-]+) (?:\[|<).* {2}/gm)].map(
    ([, name = '']) => name,
  );
  assert.ok(commands.includes('migrate') && commands.includes('ui'), commands.join());
  for (const command of commands) {
    const { stdout } = await holdfast(environment(), 'help', command);
    assert.match(stdout, /^Exit codes:\n/m);
    // The lines of a list go on under its words, and no word stands alone far to the right.
    const bad = stdout
      .split('\n')
      .filter((line) => line.length > 80 || /^ {41,}\S{1,8}$/.test(line));
    assert.deepEqual(bad, [], command);
  }
});
