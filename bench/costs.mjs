// Measures the price of a connected client for its process: time to load and to connect, resident memory, threads. Then that of
// a held lock and of a waiter for a manager.
//
//   node bench/costs.mjs             every client, in processes of their own, five times each; the medians
//   node bench/costs.mjs CLIENT URL  one process
//
// Linux, since it counts threads in /proc.

import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startServer } from './server.mjs';

const require = createRequire(import.meta.url);
const ROUNDS = 5;
/** How many locks are held, and how many callers wait, to tell what one costs. */
const MANY = 10_000;

const CLIENTS = {
  nothing: async () => {},
  holdfast: async (url) => {
    const { connect } = require('../dist/index.js');
    loaded();
    const locks = await connect(url);
    await (await locks.acquire('costs')).release();
    return locks;
  },
  ioredis: async (url) => {
    const { Redis } = require('ioredis');
    loaded();
    await new Redis(url).ping();
  },
  redis: async (url) => {
    const { createClient } = require('redis');
    loaded();
    const client = await createClient({ url }).connect();
    await client.ping();
  },
  'ioredis with redlock': async (url) => {
    const { Redis } = require('ioredis');
    const { default: Redlock } = require('redlock5');
    loaded();
    await (await new Redlock([new Redis(url)]).acquire(['costs'], 1_000)).release();
  },
};

let loadedAt = performance.now();

function loaded() {
  loadedAt = performance.now();
}

function resident() {
  globalThis.gc();
  return process.memoryUsage.rss() / 1e6;
}

async function measure(name, url) {
  const [began, before] = [performance.now(), resident()];
  const locks = await CLIENTS[name](url);
  const connected = performance.now();
  await sleep(300);
  const after = resident();
  const threads = readdirSync('/proc/self/task').length;
  const found = {
    'load, ms': loadedAt - began,
    'connect, ms': connected - loadedAt,
    'memory, MB': after - before,
    threads,
  };
  if (name === 'holdfast') Object.assign(found, await perLock(locks));
  process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit());
}

/** The resident memory of a held lock and of a waiter, in bytes. */
async function perLock(locks) {
  const names = Array.from({ length: MANY }, (_, i) => `costs:${process.pid}:${i}`);
  const idle = resident();
  const held = [];
  for (const name of names) held.push(await locks.acquire(name, { ttl: 600_000 }));
  const holding = resident();
  for (const name of names) void locks.acquire(name, { wait: 600_000 }).catch(() => {});
  await sleep(2_000);
  const waiting = resident();
  return {
    'held lock, bytes': ((holding - idle) * 1e6) / held.length,
    'waiter, bytes': ((waiting - holding) * 1e6) / held.length,
  };
}

function median(numbers) {
  return numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

async function compare() {
  const server = await startServer();
  try {
    const file = fileURLToPath(import.meta.url);
    for (const name of Object.keys(CLIENTS)) {
      const rounds = Array.from({ length: ROUNDS }, () =>
        JSON.parse(execFileSync(process.execPath, ['--expose-gc', file, name, server.url])),
      );
      const shown = Object.keys(rounds[0]).map((key) => {
        const value = median(rounds.map((each) => each[key]));
        return `${key} ${value.toFixed(value < 100 && key !== 'threads' ? 1 : 0)}`;
      });
      console.log(`${name.padEnd(21)} ${shown.join('; ')}`);
    }
  } finally {
    await server.stop();
  }
}

const [name, url] = process.argv.slice(2);
await (name === undefined ? compare() : measure(name, url));
