// Which server the demo runs on: the one that the environment names, or one that it starts itself
// and ends again.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort, serverBinary } from '../scripts/redis-server.mjs';
import { openRedis } from './redis.mjs';

const START_MS_MAX = 10_000;

const HELP = `The demo needs a Redis (6.2 or newer) or Valkey server. Any one of these will do:

  Debian, Ubuntu   sudo apt-get install redis-server
  macOS            brew install redis
  Docker           docker run -d --rm -p 6379:6379 redis, then
                   REDIS_URL=redis://127.0.0.1:6379 npm run demo
  your own         REDIS_URL=redis://user:password@host:6379 npm run demo
  a binary         HOLDFAST_REDIS_SERVER=/path/to/redis-server npm run demo`;

/** Finds or starts a server. Its `stop` ends what was started here. */
export async function findServer(env) {
  for (const name of ['HOLDFAST_URL', 'REDIS_URL']) {
    if (env[name]) return { url: env[name], origin: `named by ${name}`, ours: false, stop() {} };
  }
  return startServer(serverBinary(env, HELP));
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
  // Even if the demo itself crashes, nothing stays behind.
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
