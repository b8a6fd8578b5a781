// Measures the price of a connected client for its process, beside one of Node alone: time to load, to connect and for one
// request, the same from the start of the process on, as a function in a cloud pays it (cold start), resident memory, and
// threads. Then that of a held lock and of a waiter. Prints the table and the lines of docs/costs.md.
//
//   node bench/costs.mjs             every client, in processes of their own, fifteen times each, in turns; the medians
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
const ROUNDS = 15;
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

/** A process of a client, measured. */
function processOf(name, url) {
  const file = fileURLToPath(import.meta.url);
  const began = performance.timeOrigin + performance.now();
  const said = execFileSync(process.execPath, ['--expose-gc', file, name, url]);
  const { coldStart, ...found } = JSON.parse(said);
  return { ...found, coldStart: coldStart - began };
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
    const names = Object.keys(CLIENTS).filter(isInstalled);
    // In turns, so that what else the machine does hits all alike.
    const rounds = Array.from({ length: ROUNDS }, () =>
      Object.fromEntries(names.map((name) => [name, processOf(name, server.url)])),
    );
    const median = (name, key) => {
      const found = rounds.map((round) => round[name][key]).sort((a, b) => a - b);
      return found[Math.floor(ROUNDS / 2)];
    };
    console.log(
      '| | load, ms | connect and one request, ms | cold start, ms | memory, MB | threads |',
    );
    console.log('|---|---|---|---|---|---|');
    for (const name of names.filter((each) => each !== 'nothing')) {
      const more = (key) => median(name, key) - median('nothing', key);
      const cells = [median(name, 'load'), median(name, 'connect'), more('coldStart')];
      const shown = [...cells, more('memory'), more('threads')].map((cell) => Math.round(cell));
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
