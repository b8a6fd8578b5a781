// The server of the demo: the one that the environment names, one that the demo starts itself and
// stops again, or, where there is none, the store inside this process.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findServerBinary, freePort } from '../scripts/redis-server.mjs';
import { openRedis } from './redis.mjs';

const START_MS_MAX = 10_000;

/** With a name, so that all managers of the demo share it. */
const EMBEDDED = { url: 'memory:demo', embedded: true, ours: true, stop() {} };

/** Finds or starts a server. `stop` stops a server that was started here. */
export async function findServer(env) {
  for (const name of ['HOLDFAST_URL', 'REDIS_URL']) {
    const url = env[name];
    if (url?.startsWith('memory:')) return EMBEDDED;
    if (url) return { url, origin: `named by ${name}`, ours: false, stop() {} };
  }
  const binary = findServerBinary(env);
  return binary === undefined ? EMBEDDED : startServer(binary);
}

async function startServer(binary) {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-'));
  const log = join(folder, 'log');
  const where = ['--bind', '127.0.0.1', '--port', port, '--dir', folder, '--logfile', log];
  const args = [...where, '--save', '', '--appendonly', 'no'].map(String);
  // Detached: Ctrl-C must not end it before the locks on it were given back.
  const child = spawn(binary, args, { stdio: 'ignore', detached: true });
  const end = () => {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  // Even if the demo itself crashes, no server is left running.
  process.once('exit', end);
  const url = `redis://127.0.0.1:${port}`;
  try {
    await answers(child, url, log);
  } catch (error) {
    end();
    throw error;
  }
  return { url, origin: 'started for this demo', ours: true, stop: () => stop(child, end) };
}

async function stop(child, end) {
  const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : null;
  end();
  await gone;
  process.off('exit', end);
}

/** Waits until the new server answers. */
async function answers(child, url, log) {
  let problem;
  child.once('error', (error) => {
    problem = error.message;
  });
  child.once('exit', (code, signal) => {
    problem ??= `it ended at once (${signal ?? `exit code ${code}`})${tail(log)}`;
  });
  for (const began = performance.now(); performance.now() - began < START_MS_MAX; ) {
    if (problem !== undefined) throw new Error(`Cannot start a server: ${problem}`);
    const redis = await openRedis(url).catch(() => null);
    if (redis !== null) return redis.close();
    await sleep(20);
  }
  throw new Error(`The server did not answer within ${START_MS_MAX} ms${tail(log)}`);
}

/** The end of the server's log, each line on its own. */
function tail(log) {
  if (!existsSync(log)) return '';
  const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
  return ['', ...lines.slice(-5)].join('\n');
}
