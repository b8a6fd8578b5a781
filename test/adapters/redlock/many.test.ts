/** Two thousand objects of each drop-in package at once, over two hundred clients of one server. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MultiSemaphore, Mutex, Semaphore } from 'holdfast/redis-semaphore';
import Redlock from 'holdfast/redlock';
import { Redis } from 'ioredis';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const Redlock4 = require('holdfast/redlock4') as typeof import('holdfast/redlock4');

const CLIENTS = 200;
const OBJECTS_OF_EACH = 10;
const TTL_MS = 60_000;
const times = { lockTimeout: TTL_MS, acquireTimeout: TTL_MS };

const server = serverOfFile();

/** Takes a lock by an object of its own, and answers how to release it. */
type Take = (client: Redis, name: string) => Promise<() => PromiseLike<unknown>>;

async function acquired(lock: { acquire(): Promise<void>; release(): Promise<void> }) {
  await lock.acquire();
  return () => lock.release();
}

const TAKES: Record<string, Take> = {
  redlock: async (client, name) => {
    const lock = await new Redlock([client], { retryCount: -1 }).acquire([name], TTL_MS);
    return () => lock.release();
  },
  redlock4: async (client, name) => {
    const lock = await new Redlock4([client], { retryCount: -1 }).lock(name, TTL_MS);
    return () => lock.unlock();
  },
  Mutex: (client, name) => acquired(new Mutex(client, name, times)),
  Semaphore: (client, name) => acquired(new Semaphore(client, name, 10, times)),
  MultiSemaphore: (client, name) => acquired(new MultiSemaphore(client, name, 10, 2, times)),
};

async function connections(): Promise<number> {
  const list = await server.admin.client('LIST');
  return String(list).split('\n').filter(Boolean).length;
}

for (const [name, take] of Object.entries(TAKES)) {
  test(`${name}: many clients share a connection, which ends with them`, {
    timeout: 120_000,
  }, async () => {
    const warnings: Error[] = [];
    const warn = (warning: Error) => warnings.push(warning);
    process.on('warning', warn);
    const without = await connections();
    const clients = Array.from({ length: CLIENTS }, () => new Redis(server.url));
    await Promise.all(clients.map((client) => client.ping()));
    const before = await connections();
    const objects = clients.flatMap((client) => Array(OBJECTS_OF_EACH).fill(client) as Redis[]);
    // Each has a name of its own, and then shares one with a hundred others.
    for (const names of [objects.length, objects.length / 100]) {
      const releases = objects.map(async (client, i) => {
        const release = await take(client, `${name}:${i % names}`);
        if (names < objects.length) await release();
        return release;
      });
      const all = await Promise.all(releases);
      assert.ok((await connections()) <= before + 1, `${before} before`);
      if (names === objects.length) await Promise.all(all.map((release) => release()));
    }
    await Promise.all(clients.map((client) => client.quit()));
    await until(async () => (await connections()) === without, 'the end of all connections');
    process.off('warning', warn);
    assert.deepEqual(warnings, []);
    const keys = (await server.admin.keys('*')).filter((key) => key !== 'holdfast:fence');
    assert.deepEqual(keys, []);
  });
}
