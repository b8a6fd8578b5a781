// The server under the benchmark: one of its own on a free port, or the one that
// HOLDFAST_BENCH_URL names, never any other server. And a proxy that delays it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findServerBinary, freePort } from '../scripts/redis-server.mjs';

const START_MS = 10_000;

const HELP =
  'the benchmark needs a Redis or Valkey server: install one, name its binary in ' +
  'HOLDFAST_REDIS_SERVER, or name a running server in HOLDFAST_BENCH_URL';

/**
 * Runs the server and ends it when standard input closes, which happens however this process
 * ends. Signals from the terminal reach the whole group and must not end the guard first.
 */
const GUARD = 'exec 2>&1; trap "" INT TERM HUP; "$@" & read -r _; kill -9 $!';

/** `{ url, own, stop }` */
export async function startServer() {
  const url = process.env['HOLDFAST_BENCH_URL'];
  if (url === undefined) return startOwnServer();
  if (!/^redis:\/\//.test(url)) throw new Error('HOLDFAST_BENCH_URL must begin with redis://');
  return { url, own: false, stop: async () => {} };
}

/** A server of its own on a free port; `more` are further arguments. */
export async function startOwnServer(more = []) {
  const binary = findServerBinary(process.env);
  if (binary === undefined) throw new Error(HELP);
  const port = await freePort();
  const where = ['--port', String(port), '--bind', '127.0.0.1', '--dir', tmpdir()];
  const args = [...where, '--save', '', '--appendonly', 'no', ...more];
  const guard = spawn('sh', ['-c', GUARD, 'sh', binary, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await ready(guard);
  const stop = async () => {
    guard.stdin.end();
    await once(guard, 'exit');
  };
  return { url: `redis://127.0.0.1:${port}`, own: true, stop };
}

/** `{ url, stop }` of a proxy in a process of its own that delays all data by `delayMs` in each direction. */
export async function startProxy(url, delayMs) {
  const target = new URL(url);
  const args = [join(import.meta.dirname, 'proxy.mjs'), target.port, String(delayMs)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [port] = await once(child.stdout, 'data');
  target.port = String(port).trim();
  return { url: target.href, stop: () => child.stdin.end() };
}

function ready(guard) {
  return new Promise((resolve, reject) => {
    let log = '';
    const timer = setTimeout(
      () => reject(new Error(`the server did not start:\n${log}`)),
      START_MS,
    );
    guard.once('error', reject);
    guard.stdout.setEncoding('utf8').on('data', (text) => {
      log += text;
      if (!log.includes('eady to accept connections')) return;
      clearTimeout(timer);
      guard.stdout.removeAllListeners('data').resume();
      resolve();
    });
  });
}
