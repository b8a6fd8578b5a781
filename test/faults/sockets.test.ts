/** Every socket and every handle of a connection goes with it, however it ends; and a process may run out of them. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { after, describe, test } from 'node:test';
import { Authority } from '../support/certificates.js';
import { ROOT } from '../support/child.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';
import { serverOfFile } from '../support/server-of-file.js';
import { sleep } from '../support/wait.js';

/** Each kind of disconnection happens a thousand times. */
const MANAGERS = 100;
const ROUNDS = 10;

/**
 * What the programs begin with. They ask the test for a fault and wait until it has happened; `sockets` counts the
 * sockets of the process, and `polls` those for which the event loop of this thread waits.
 */
const COMMON = `
  const { readdirSync, readlinkSync } = require('node:fs');
  const { createRequire } = require('node:module');
  const { isMainThread, parentPort, Worker, workerData } = require('node:worker_threads');
  const { connect } = createRequire(process.cwd() + '/package.json')('holdfast');
  const test = isMainThread ? process : parentPort;
  const tell = (message) => (isMainThread ? process.send(message) : parentPort.postMessage(message));
  const fault = (name) => new Promise((resolve) => {
    test.once('message', resolve);
    tell({ fault: name });
  });
  const isSocket = (fd) => {
    try {
      return readlinkSync('/proc/self/fd/' + fd).startsWith('socket:');
    } catch {
      return false;
    }
  };
  const sockets = () => (process.platform === 'linux' ? readdirSync('/proc/self/fd').filter(isSocket).length : 0);
  const polls = () => process.report.getReport().libuv.filter(({ type }) => type === 'poll').length;
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const atMost = async (count, most, what) => {
    for (const end = performance.now() + 60_000; count() > most && performance.now() < end; ) await sleep(5);
    if (count() > most) throw new Error(what + ': ' + count() + ', not ' + most);
  };
  const given = isMainThread ? process.argv[1] : workerData;
  const { url, options, managers, rounds, blocked, silent, worker } = JSON.parse(given);
`;

const CHURN = `${COMMON}
  const block = (until) => {
    for (const end = performance.now() + 20_000; !until() && performance.now() < end; );
  };
  const work = async () => {
    const before = [sockets(), polls()];
    const all = await Promise.all(Array.from({ length: managers }, () => connect(url, options)));
    let lost = 0;
    const connected = new Set(all);
    const living = new Set();
    for (const each of all) {
      each.on('disconnect', () => {
        lost++;
        connected.delete(each);
        living.delete(each);
      });
      each.on('reconnect', () => connected.add(each));
    }
    const use = () => Promise.all(all.map((each, i) => each.request('fd:' + i, { wait: 60_000 }, () => {})));
    await use();
    const during = [sockets(), polls()];
    for (let round = 1; round <= rounds; round++) {
      // Not all: on a busy machine some connections may have gone by themselves.
      for (const each of connected) living.add(each);
      const begun = fault('begin');
      if (blocked) {
        // The keeper connects anew meanwhile; the old handles keep their sockets until the event loop turns.
        const end = performance.now() + 100;
        block(() => performance.now() > end);
        block(() => sockets() <= during[0] + managers);
        if (sockets() > during[0] + managers) throw new Error('while blocked: ' + sockets());
      }
      await begun;
      // Only a request finds a silence out.
      if (silent) for (const each of all) each.tryAcquire('silent').catch(() => {});
      await atMost(() => living.size, 0, 'connections that live on');
      await fault('end');
      await atMost(() => managers - connected.size, 0, 'managers without a connection');
      await use();
    }
    await atMost(sockets, during[0], 'sockets');
    await atMost(polls, during[1], 'handles');
    if (worker) return lost;
    await Promise.all(all.map((each) => each.close()));
    await atMost(sockets, before[0], 'sockets after close');
    await atMost(polls, before[1], 'handles after close');
    return lost;
  };
  const inWorker = async () => {
    const before = sockets();
    const thread = new Worker(process.env.PROGRAM, { eval: true, execArgv: [], workerData: given });
    const lost = await new Promise((resolve, reject) => {
      process.on('message', (message) => thread.postMessage(message));
      thread.on('error', reject);
      thread.on('message', (message) => {
        if ('fault' in message) process.send(message);
        else resolve(message.lost);
      });
    });
    await thread.terminate();
    await atMost(sockets, before, 'sockets after the end of a worker');
    return lost;
  };
  (worker && isMainThread ? inWorker() : work()).then((lost) => {
    tell({ lost });
    if (isMainThread) process.disconnect();
    else parentPort.unref();
  });
`;

const running = new Set<ChildProcess>();
after(() => {
  for (const child of running) child.kill('SIGKILL');
});

interface Fault {
  begin(): unknown;
  end?(): unknown;
}

interface Setting {
  readonly url: string;
  readonly options?: object;
  readonly managers?: number;
  readonly rounds?: number;
  readonly blocked?: boolean;
  readonly silent?: boolean;
  readonly worker?: boolean;
}

/** Runs a program, does to it what it asks for, and answers its last message. */
async function run(
  program: string,
  fault: Record<string, (() => unknown) | undefined>,
  setting: Setting,
  { command = [process.execPath], reader = '' } = {},
): Promise<Record<string, unknown>> {
  const [file = '', ...before] = command;
  const args = [...before, '--eval', program, '--', JSON.stringify(setting)];
  const env = { ...process.env, HOLDFAST_READER: reader, PROGRAM: program };
  const child = spawn(file, args, { cwd: ROOT, env, stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
  running.add(child);
  let stderr = '';
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  let last: Record<string, unknown> = {};
  child.on('message', async (message: Record<string, unknown>) => {
    last = message;
    if (typeof message['fault'] !== 'string') return;
    await fault[message['fault']]?.();
    if (child.connected) child.send('done');
  });
  const code = await new Promise((resolve) => child.once('close', resolve));
  running.delete(child);
  assert.equal(code, 0, stderr);
  return last;
}

const server = serverOfFile();

/** No connection that ends leaves anything behind. */
async function leavesNothing(fault: Fault, given: Setting, reader = ''): Promise<void> {
  const options = { commandTimeout: 20_000, connectTimeout: 20_000, ...given.options };
  const setting = { managers: MANAGERS, rounds: ROUNDS, ...given, options };
  const { lost } = await run(CHURN, { ...fault }, setting, { reader });
  assert.ok(Number(lost) >= setting.managers * setting.rounds, `${lost} disconnections`);
}

async function kill(target: RedisServer): Promise<void> {
  for (const type of ['normal', 'pubsub'] as const) {
    await target.admin.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
  }
}

describe('a thousand connections that end leave nothing behind', () => {
  const through = (name: string, fault: (proxy: FaultProxy) => Fault, more: object = {}) => {
    test(name, async (t) => {
      const proxy = await FaultProxy.start(server.port);
      t.after(() => proxy.stop());
      const { reader = '', ...setting } = more as { reader?: string };
      await leavesNothing(fault(proxy), { url: proxy.url, ...setting }, reader);
    });
  };
  const reset = (proxy: FaultProxy) => ({ begin: () => proxy.cut() });
  const hangUp = (proxy: FaultProxy) => ({ begin: () => proxy.hangUp() });

  through('closed by the server', hangUp);
  through('reset', reset);
  through('reset, in a worker that is terminated', reset, { worker: true });
  through('closed, in a worker that is terminated', hangUp, { worker: true });
  through('closed, read by the keeper', hangUp, { reader: 'keeper' });
  through('reset, read by the keeper', reset, { reader: 'keeper' });

  through(
    'reset again and again while the event loop is blocked',
    (proxy) => ({
      begin: async () => {
        for (let i = 0; i < 10; i++) {
          proxy.cut();
          await sleep(10);
        }
      },
    }),
    { blocked: true },
  );

  test('silent for longer than commandTimeout', async (t) => {
    const proxy = await FaultProxy.start(server.port);
    t.after(() => proxy.stop());
    const options = { commandTimeout: 500 };
    const begin = () => {
      proxy.blackhole = true;
    };
    const end = () => {
      proxy.blackhole = false;
      // What would wait for connectTimeout.
      proxy.cut();
    };
    await leavesNothing({ begin, end }, { url: proxy.url, options, silent: true });
  });

  test('refused for a while after a reset', async (t) => {
    let proxy = await FaultProxy.start(server.port);
    t.after(() => proxy.stop());
    const { url, port } = proxy;
    const fault = {
      begin: () => proxy.stop(),
      end: async () => {
        // The first attempt came at once.
        await sleep(50);
        proxy = await FaultProxy.start(server.port, { port });
      },
    };
    await leavesNothing(fault, { url });
  });

  test('killed by CLIENT KILL', () =>
    leavesNothing({ begin: () => kill(server) }, { url: server.url }));

  test('killed by CLIENT KILL, on a socket file', async (t) => {
    const local = await RedisServer.start({ socket: true });
    t.after(() => local.stop());
    await leavesNothing({ begin: () => kill(local) }, { url: local.url });
  });

  test('closed and reset, with TLS', async (t) => {
    const authority = new Authority();
    const tls = { ca: authority.ca, server: authority.issue('IP:127.0.0.1') };
    const secure = await RedisServer.start({ tls });
    t.after(() => secure.stop());
    const proxy = await FaultProxy.start(secure.port);
    t.after(() => proxy.stop());
    const url = `rediss://127.0.0.1:${proxy.port}`;
    const options = { tls: { ca: tls.ca.cert } };
    let round = 0;
    await leavesNothing(
      { begin: () => (round++ % 2 === 0 ? proxy.cut() : proxy.hangUp()) },
      { url, options },
    );
  });
});

test('an attempt to connect ends with its manager', async (t) => {
  const proxy = await FaultProxy.start(server.port);
  t.after(() => proxy.stop());
  const program = `${COMMON}
    const main = async () => {
      const before = sockets();
      const locks = await connect(url, options);
      const gone = new Promise((resolve) => locks.once('disconnect', resolve));
      await fault('silence');
      await gone;
      await fault('an attempt');
      await locks.close();
      await atMost(sockets, before, 'sockets after close');
    };
    main().then(() => process.disconnect());`;
  const fault = {
    silence: () => {
      proxy.blackhole = true;
      proxy.cut();
    },
    'an attempt': async () => {
      while (proxy.open === 0) await sleep(5);
    },
  };
  // Much longer than the test waits.
  await run(program, fault, { url: proxy.url, options: { connectTimeout: 300_000 } });
});

describe('a process without a free descriptor', () => {
  const EXHAUSTED = `${COMMON}
    const { closeSync, openSync } = require('node:fs');
    const opened = [];
    const exhaust = () => {
      try {
        for (;;) opened.push(openSync('/dev/null'));
      } catch (error) {
        if (error.code !== 'EMFILE') throw error;
      }
    };
    const recover = () => opened.splice(0).forEach((fd) => closeSync(fd));
    const says = async (promise, action) => {
      const error = await promise.then(() => 'no error', (error) => error);
      const told = /^cannot .*: this process has no free file descriptor \\(EMFILE\\): raise its limit/;
      if (error.code === 'ERR_LOCK_CONNECTION' && told.test(error.message)) return;
      throw new Error(action + ': ' + error);
    };
    const end = () => process.disconnect();
  `;
  const limited = { command: ['/bin/sh', '-c', 'ulimit -n 100; exec "$0" "$@"', process.execPath] };
  const options = { commandTimeout: 20_000, connectTimeout: 20_000 };
  const windows = process.platform === 'win32' && 'Windows has no such limit';

  test('cannot connect, says what to do, and can as soon as it has one', {
    skip: windows,
  }, async () => {
    const program = `${EXHAUSTED}
      const named = url.replace('127.0.0.1', 'localhost');
      const main = async () => {
        // The first call would start the keeper.
        for (const first of [true, false]) {
          await atMost(polls, 0, 'handles');
          exhaust();
          await says(connect(url, options), 'connect');
          await says(connect(named, options), 'connect by name');
          await says(connect('redis://no-such-host.invalid', options), 'connect to an unknown host');
          await says(connect({ cluster: [url] }, options), 'connect to a Cluster');
          recover();
          for (const each of [url, named]) {
            const locks = await connect(each, options);
            await (await locks.acquire('recovered')).release();
            await locks.close();
          }
        }
      };
      main().then(end);`;
    await run(program, {}, { url: server.url, options }, limited);
  });

  for (const reader of ['', 'keeper']) {
    const name = reader === '' ? 'event loop' : reader;
    test(`connects anew as soon as it has one: ${name}`, { skip: windows }, async (t) => {
      const proxy = await FaultProxy.start(server.port);
      t.after(() => proxy.stop());
      const program = `${EXHAUSTED}
        const main = async () => {
          const locks = await connect(url, options);
          const held = await locks.acquire('held', { ttl: 60_000 });
          for (let round = 0; round < 3; round++) {
            // A connection that ends leaves its descriptor to whoever is first: the next one, or this program.
            const hog = setInterval(exhaust, 1);
            for (let told = false, tries = 0; !told; tries++) {
              await fault('cut');
              const acquired = locks.acquire('during', { wait: 1_000 });
              acquired.then((lock) => lock.release()).catch(() => {});
              told = await says(acquired, 'acquire').then(() => true, (error) => {
                if (tries === 20) throw error;
                return false;
              });
            }
            clearInterval(hog);
            recover();
            await (await locks.acquire('after', { wait: 20_000 })).release();
            if (!held.held) throw new Error('the lock was lost');
          }
          await locks.close();
        };
        main().then(end);`;
      // An acquire waits for a connection at least as long as for an answer.
      const setting = { url: proxy.url, options: { ...options, commandTimeout: 1_000 } };
      await run(program, { cut: () => proxy.cut() }, setting, { ...limited, reader });
    });
  }
});
