/** A garbage collection may take managers, except those that hold locks, wait or have listeners. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();

for (const place of ['memory:', 'Redis']) {
  for (const how of ['forced', 'of their own accord']) {
    test(`${place}: what is held is held on, whatever its caller refers to; collections ${how}`, async () => {
      const target = place === 'Redis' ? server.url : 'memory:forgetting';
      const flags = how === 'forced' ? ['--expose-gc'] : ['--max-old-space-size=64'];
      const program = [...flags, join(__dirname, 'forgetting.js'), target];
      const { stdout } = await promisify(execFile)(process.execPath, program);
      const lines = stdout.trim().split('\n');
      assert.ok(lines.length > 15, stdout);
      assert.deepEqual(
        lines.filter((line) => !line.endsWith(': held')),
        [],
      );
    });
  }
}

/** Opens a manager that is called `name`, does something with it, and drops the reference. */
async function forget(name: string, use: (locks: LockManager) => unknown): Promise<void> {
  await use(await connect(server.url, { clientName: name }));
}

/** Whether the manager `name` is connected, some collections of garbage later. */
async function isThere(name: string): Promise<boolean> {
  assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
  for (let turn = 0; turn < 5; turn++) {
    globalThis.gc();
    await new Promise(setImmediate);
  }
  return String(await server.admin.client('LIST')).includes(`name=${name} `);
}

const listener = () => {};

for (const [how, use] of Object.entries<(locks: LockManager) => unknown>({
  'was never used': () => {},
  'has released what it held': async (locks) => (await locks.acquire('a')).release(),
  'has ended its requests': (locks) => locks.request(['a', 'b'], () => {}),
  'has waited in vain': async (locks) => {
    await locks.acquire('busy', { wait: 20 }).catch(() => {});
  },
  'has lost what it held': async (locks) => {
    const lock = await locks.acquire('b', { ttl: 50, renew: false });
    await until(() => lock.signal.aborted, 'the loss');
  },
  'has no listener any more': (locks) => {
    locks.on('lost', listener).off('lost', listener);
    locks.once('disconnect', listener).removeAllListeners();
    locks.prependListener('lost', listener).removeAllListeners('lost');
  },
})) {
  test(`a manager that ${how} is collected when nobody refers to it`, async () => {
    const others = await connect(server.url);
    const busy = await others.acquire('busy');
    await forget('idle', use);
    await until(async () => !(await isThere('idle')), 'the end of its connection');
    await busy.release();
    await others.close();
  });
}

for (const method of ['on', 'once', 'addListener', 'prependOnceListener'] as const) {
  test(`a manager that somebody listens to by ${method} is not collected`, async () => {
    let told = 0;
    const name = `heard-by-${method}`;
    await forget(name, (locks) => locks[method]('disconnect', () => (told += 1)));
    for (let turn = 0; turn < 5; turn++) assert.ok(await isThere(name));
    await server.killClients();
    await until(() => told > 0, 'the listener to be told');
  });
}

// The channel is internal: it is reached by path, past the package's exports.
interface Internals {
  readonly NativeChannel: new (
    options: unknown,
    opened: (outcome: unknown) => void,
  ) => { submit(operation: unknown): Promise<Outcome> };
  prepare(target: string, options: object): { options: unknown };
  readonly records: Records;
}

interface Records {
  readonly AcquireOperation: new (name: string, request: object) => object;
  readonly OutcomeCode: { readonly Acquired: number };
  readonly SHARE_EXCLUSIVE: number;
}

interface Outcome {
  readonly code: number;
}

test('an operation under way keeps its manager by itself, whatever its caller refers to', async () => {
  const { NativeChannel, prepare, records } = require('../../../../dist/internals.js') as Internals;
  const others = await connect(server.url);
  const busy = await others.acquire('waited for');
  const begin = async (): Promise<{ outcome: Promise<Outcome> }> => {
    const { options } = prepare(server.url, { clientName: 'waiting' });
    let channel: InstanceType<Internals['NativeChannel']> | undefined;
    await new Promise((opened) => {
      channel = new NativeChannel(options, opened);
    });
    const hold = {
      ttl: 60_000,
      renew: true,
      maxHold: Number.POSITIVE_INFINITY,
      stallTimeout: 30_000,
    };
    const request = { ...hold, wait: 60_000, share: records.SHARE_EXCLUSIVE, label: '' };
    const operation = new records.AcquireOperation('waited for', request);
    return { outcome: channel?.submit(operation) as Promise<Outcome> };
  };
  const { outcome } = await begin();
  for (let turn = 0; turn < 5; turn++) assert.ok(await isThere('waiting'));
  await busy.release();
  assert.equal((await outcome).code, records.OutcomeCode.Acquired);
  await others.close();
});

test('a manager that was closed is collected, also if somebody listens', async () => {
  const close = async () => {
    const locks = await connect(server.url);
    locks.on('lost', listener);
    await locks.acquire('c');
    await locks.close();
    locks.on('warning', listener);
    return new WeakRef(locks);
  };
  const reference = await close();
  await until(async () => {
    await isThere('');
    return reference.deref() === undefined;
  }, 'the manager to be collected');
});
