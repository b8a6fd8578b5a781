/** While the event loop of a process is blocked, its keeper renews, reads and connects again by itself. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpus } from 'node:os';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { type Ended, ended, ROOT } from '../support/child.js';
import { connect, type LockManager } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { serverOfFile } from '../support/server-of-file.js';
import { sleep, until } from '../support/wait.js';

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
});

/** For the programs below: `block` says that it begins, and lets nothing of this thread run for so long. */
const PRELUDE = `
  import { writeSync } from 'node:fs';
  import { connect } from 'holdfast';
  const [url] = process.argv.slice(1);
  const manager = await connect(url);
  const patient = { stallTimeout: Infinity, wait: Infinity };
  function block(ms) {
    writeSync(1, 'blocked\\n');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  }
`;

/** Runs a program, and `meanwhile` once it is blocked. */
async function runBlocked(
  url: string,
  program: string,
  meanwhile: () => Promise<void>,
): Promise<Ended> {
  const flags = ['--input-type=module', '--eval', PRELUDE + program, '--', url];
  const child = spawn(process.execPath, flags, { cwd: ROOT, stdio: 'pipe' });
  const end = ended(child);
  const blocked = new Promise<void>((resolve, reject) => {
    createInterface(child.stdout).once('line', () => resolve());
    void end.then(({ stderr }) => reject(new Error(`it never blocked: ${stderr}`)));
  });
  await blocked;
  const [result] = await Promise.all([end, meanwhile()]);
  return result;
}

/** Nobody else gets the lock for so long. */
async function staysHeld(name: string, ms: number): Promise<void> {
  for (const end = performance.now() + ms; performance.now() < end; ) {
    assert.equal(await locks.tryAcquire(name), null, `${name} was free`);
    await sleep(100);
  }
}

function printed({ code, signal, stdout, stderr }: Ended, ...lines: string[]): void {
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, stderr);
  assert.equal(stdout, ['blocked', ...lines, ''].join('\n'), stderr);
}

describe('while the event loop is blocked', { concurrency: true }, () => {
  test('most of what it has asked for is under way', async () => {
    const program = `
      const names = Array.from({ length: 7 }, (_, index) => 'early:' + index);
      const all = names.map((name) => manager.acquire(name, { ...patient }));
      block(3_000);
      await Promise.all(all);
      await manager.close();`;
    // On the only core of a machine the server could not work meanwhile.
    const sent = cpus().length > 1 ? 5 : 0;
    const result = await runBlocked(server.url, program, async () => {
      const held = async () => (await server.admin.keys('lock:early:*')).length;
      await until(async () => (await held()) >= sent, 'held');
      assert.equal(await held(), sent);
    });
    printed(result);
  });

  test('callers in a queue do not count among what is under way', async () => {
    const program = `
      await manager.acquire('taken', { ...patient });
      const waiters = Array.from({ length: 20 }, () => manager.acquire('taken', { ...patient }));
      const closed = Promise.allSettled(waiters);
      // The first of them asks, and then joins the queue at the server: the second answer here is behind both of its.
      await manager.tryAcquire('later');
      await manager.tryAcquire('later');
      const names = Array.from({ length: 7 }, (_, index) => 'beside:' + index);
      const all = names.map((name) => manager.acquire(name, { ...patient }));
      block(3_000);
      await Promise.all(all);
      await manager.close();
      await closed;`;
    const sent = cpus().length > 1 ? 5 : 0;
    const result = await runBlocked(server.url, program, async () => {
      const held = async () => (await server.admin.keys('lock:beside:*')).length;
      await until(async () => (await held()) >= sent, 'held');
      assert.equal(await held(), sent);
    });
    printed(result);
  });

  test('leases are renewed for a minute', async () => {
    const program = `
      const lock = await manager.acquire('minute', { ttl: 2_000, ...patient });
      block(60_000);
      console.log(lock.held);
      console.log(await lock.release());
      await manager.close();`;
    const result = await runBlocked(server.url, program, () => staysHeld('minute', 58_000));
    printed(result, 'true', 'true');
  });

  test('a connection that breaks is opened again, and leases are renewed over the new one', async () => {
    const proxy = await FaultProxy.start(server.port);
    const program = `
      const lock = await manager.acquire('broken', { ttl: 2_000, ...patient });
      block(9_000);
      console.log(lock.held);
      console.log(await lock.release());
      await manager.close();`;
    const result = await runBlocked(proxy.url, program, async () => {
      await staysHeld('broken', 1_000);
      proxy.cut();
      await staysHeld('broken', 6_500);
    });
    await proxy.stop();
    printed(result, 'true', 'true');
  });

  test('a grant by message is claimed, and its lease is renewed', async () => {
    const ours = await locks.acquire('granted', { ttl: 60_000 });
    const program = `
      const waiting = manager.acquire('granted', { ttl: 1_000, ...patient });
      for (let i = 0; i < 3_000 && (await manager.query()).pending.length === 0; i++);
      block(8_000);
      const lock = await waiting;
      console.log(lock.held);
      console.log(await lock.release());
      await manager.close();`;
    const result = await runBlocked(server.url, program, async () => {
      await ours.release();
      await staysHeld('granted', 6_000);
    });
    printed(result, 'true', 'true');
  });

  test('a lock that is taken away is lost in the first line after', async () => {
    const program = `
      const lock = await manager.acquire('taken', { ttl: 60_000, ...patient });
      const lost = new Promise((resolve) => manager.once('lost', (_, error) => resolve(error)));
      // A held lock does not keep a process alive.
      const alive = setInterval(() => {}, 1_000);
      block(4_000);
      console.log(lock.held);
      console.log((await lost).reason);
      clearInterval(alive);
      await manager.close();`;
    let thief: Awaited<ReturnType<LockManager['acquire']>> | undefined;
    const result = await runBlocked(server.url, program, async () => {
      thief = await locks.acquire('taken', { steal: true });
    });
    await thief?.release();
    printed(result, 'false', 'stolen');
  });
});
