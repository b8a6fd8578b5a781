/** A rolling restart: the instances of a service are replaced one after the other, under load. */

import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

/** The arguments of the instances about their servers. */
export interface Servers {
  readonly kind: 'cluster' | 'servers';
  readonly urls: readonly string[];
}

const INSTANCES = 3;
/** The number of holds of every instance before the next one is replaced. */
const TURNS = 5;
const LIMIT_MS = 90_000;

/** Replaces instances with `from` for such with `to`; fails if two were ever in at once. */
export async function replaceAll(servers: Servers, from: string, to: string): Promise<void> {
  const ledger = await RedisServer.start();
  const running = new Map<string, ChildProcess>();
  const start = (name: string, i: number) => {
    const who = `${name} ${i}`;
    const args = [name, who, ledger.url, servers.kind, ...servers.urls];
    running.set(who, fork(join(__dirname, 'service.js'), args));
  };
  try {
    for (let i = 0; i < INSTANCES; i++) start(from, i);
    for (let i = 0; i < INSTANCES; i++) {
      await turns(ledger, running);
      start(to, i);
      await turns(ledger, running);
      await stop(running, `${from} ${i}`);
    }
    await turns(ledger, running);
    for (const who of [...running.keys()]) await stop(running, who);
    await check(ledger);
  } finally {
    for (const child of running.values()) child.kill('SIGKILL');
    await ledger.stop();
  }
}

/** Waits until every running instance has had some more holds. */
async function turns(ledger: RedisServer, running: Map<string, ChildProcess>): Promise<void> {
  const before = await ledger.admin.hgetall('by');
  const all = async () => {
    for (const [who, child] of running) assert.equal(child.exitCode, null, `${who} has ended`);
    const counts = await ledger.admin.hgetall('by');
    return [...running.keys()].every(
      (who) => Number(counts[who] ?? 0) >= Number(before[who] ?? 0) + TURNS,
    );
  };
  await until(all, `${[...running.keys()].join(', ')} to be in ${TURNS} times each`, LIMIT_MS);
}

async function stop(running: Map<string, ChildProcess>, who: string): Promise<void> {
  const child = running.get(who) as ChildProcess;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.send('stop');
  assert.equal(await ended, 0, `the exit code of ${who}`);
  running.delete(who);
}

/** No two instances held a lock at once, and no update of a counter was lost. */
async function check(ledger: RedisServer): Promise<void> {
  assert.deepEqual(await ledger.admin.lrange('overlaps', 0, -1), []);
  const keys = await ledger.admin.keys('times:*');
  assert.ok(keys.length > 0);
  for (const key of keys) {
    const resource = key.slice('times:'.length);
    assert.equal(
      await ledger.admin.get(`plain:${resource}`),
      await ledger.admin.get(key),
      resource,
    );
  }
}
