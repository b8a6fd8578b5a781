// Measures the price of a connected client for its process, beside one of Node alone: time to load, to connect and for one
// request, the same from the start of the process on, as a function in a cloud pays it (cold start), resident memory, and
// threads. Then that of a held lock and of a waiter. Prints the table and the lines of docs/costs.md.
//
//   node bench/costs.mjs             every client, in processes of their own, five times each; the medians
//   node bench/costs.mjs CLIENT URL  one process
//
// Linux, since it counts threads in /proc. GLIDE is measured if `npm install --prefix bench` has been run.

import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { measureMemory } from '../scripts/instructions/measure.mjs';
import { startServer } from './server.mjs';

const require = createRequire(import.meta.url);
const ROUNDS = 5;
const SETTLE_MS = 300;
const GLIDE = '@valkey/valkey-glide';

/** Each loads, says so, and has one request answered. */
const CLIENTS = {
  nothing: async () => loaded(),
  holdfast: async (url) => {
    const { connect } = require('../dist/index.js');
    loaded();
    const locks = await connect(url);
    await (await locks.acquire('costs')).release();
  },
  ioredis: async (url) => {
    const { Redis } = require('ioredis');
    loaded();
    await new Redis(url).ping();
  },
  'ioredis with redlock': async (url) => {
    const { Redis } = require('ioredis');
    const { default: Redlock } = require('redlock5');
    loaded();
    await (await new Redlock([new Redis(url)]).acquire(['costs'], 1_000)).release();
  },
  'node-redis': async (url) => {
    const { createClient } = require('redis');
    loaded();
    const client = await createClient({ url }).connect();
    await client.ping();
  },
  GLIDE: async (url) => {
    const { GlideClient } = require(GLIDE);
    loaded();
    const { hostname: host, port } = new URL(url);
    await (await GlideClient.createClient({ addresses: [{ host, port: Number(port) }] })).ping();
  },
};

let loadedAt = 0;

function loaded() {
  loadedAt = performance.now();
}

function resident() {
  globalThis.gc();
  return process.memoryUsage.rss() / 1e6;
}

/** Measures this process, and prints the figures. */
async function measure(name, url) {
  const [began, before] = [performance.now(), resident()];
  await CLIENTS[name](url);
  const answered = performance.now();
  // The parent has the clock that began with the process.
  const coldStart = performance.timeOrigin + answered;
  await sleep(SETTLE_MS);
  const found = {
    load: loadedAt - began,
    connect: answered - loadedAt,
    coldStart,
    memory: resident() - before,
    threads: readdirSync('/proc/self/task').length,
  };
  process.stdout.write(JSON.stringify(found), () => process.exit());
}

/** The medians of a client's processes. */
function mediansOf(name, url) {
  const file = fileURLToPath(import.meta.url);
  const rounds = Array.from({ length: ROUNDS }, () => {
    const began = performance.timeOrigin + performance.now();
    const said = execFileSync(process.execPath, ['--expose-gc', file, name, url]);
    const { coldStart, ...found } = JSON.parse(said);
    return { ...found, coldStart: coldStart - began };
  });
  const median = (key) =>
    rounds.map((each) => each[key]).sort((a, b) => a - b)[Math.floor(ROUNDS / 2)];
  return Object.fromEntries(Object.keys(rounds[0]).map((key) => [key, median(key)]));
}

function isInstalled(name) {
  try {
    return name !== 'GLIDE' || require.resolve(GLIDE) !== '';
  } catch {
    return false;
  }
}

async function compare() {
  const server = await startServer();
  try {
    const alone = mediansOf('nothing', server.url);
    console.log(
      '| | load, ms | connect and one request, ms | cold start, ms | memory, MB | threads |',
    );
    console.log('|---|---|---|---|---|---|');
    for (const name of Object.keys(CLIENTS)) {
      if (name === 'nothing' || !isInstalled(name)) continue;
      const { load, connect, coldStart, memory, threads } = mediansOf(name, server.url);
      const cells = [load, connect, coldStart - alone.coldStart, memory - alone.memory];
      const shown = [...cells, threads - alone.threads].map((cell) => Math.round(cell));
      console.log(`| ${[name, ...shown].join(' | ')} |`);
    }
  } finally {
    await server.stop();
  }
  const memory = await measureMemory();
  console.log('');
  for (const name of ['held lock', 'waiter']) {
    console.log(`${name}: ${(memory[name] / 1_000).toFixed(1)} kB`);
  }
}

const [name, url] = process.argv.slice(2);
await (name === undefined ? compare() : measure(name, url));
