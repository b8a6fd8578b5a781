/**
 * Scripts are not rolled back, so none may fail after its first write, whichever of the commands a server refuses to
 * scripts that services are known to refuse.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Redis } from 'ioredis';
import { serverOfFile } from '../../support/server-of-file.js';
import { FENCE, LOCK, QUEUE, SHARED, source, WAITERS, WAITING } from './scripts.js';

const ALL = [LOCK, FENCE, QUEUE, WAITERS, SHARED, WAITING];
const [A, B, C] = ['hf1.a.1', 'hf1.b.1', 'hf1.c.1'] as const;
const INBOX = 'holdfast:inbox';
const TTL = '60000';
/** The server's clock, as a manager of today knows it. */
const EPOCH = String(Date.now() * 1_000);

interface Call {
  readonly script: string;
  readonly keys: readonly string[];
  readonly args: readonly string[];
}

function call(script: string, keys: readonly string[], ...args: readonly string[]): Call {
  return { script, keys, args };
}

function acquire(token: string, intent: string, limit: string, seen = ''): Call {
  return call('acquire', ALL, token, TTL, '0', INBOX, intent, limit, '1', seen);
}

/** What happened to the lock before. */
const STATES: Readonly<Record<string, readonly Call[]>> = {
  'nobody has it': [],
  'one has it': [acquire(A, 'try', '-')],
  'one has it, another waits': [acquire(A, 'try', '-'), acquire(B, '0', '-')],
  'one has it, another waits for a share': [acquire(A, 'try', '-'), acquire(B, '0', '0')],
  'two share it': [acquire(A, 'try', '0'), acquire(B, 'try', '0')],
  'one shares it, another waits': [acquire(A, 'try', '0'), acquire(B, '0', '-')],
  'it was granted by message': [
    acquire(B, 'try', '-'),
    acquire(A, '0', '-'),
    call('release', ALL, B, '0'),
  ],
};

const CALLS: readonly Call[] = [
  ...['try', '0', 'poll'].flatMap((intent) =>
    ['-', '0', '2'].flatMap((limit) => [A, B, C].map((token) => acquire(token, intent, limit))),
  ),
  acquire(C, 'steal', '-', A),
  acquire(C, 'steal', '0', A),
  call('acquire_all', [LOCK, FENCE, QUEUE], TTL, '0', A),
  ...[A, C].flatMap((token) => [
    call('acquire_unqueued', [LOCK, FENCE], token, TTL, EPOCH, 'try', '1'),
    call('acquire_unqueued', [LOCK, FENCE], token, TTL, EPOCH, 'poll', '1'),
  ]),
  call('adopt', ALL, C, '0', A, TTL, '-'),
  call('adopt', ALL, C, '0', A, TTL, '0'),
  call('change_shares', [LOCK, FENCE, QUEUE, SHARED], '1', TTL, '0', C, A),
  call('claim', [LOCK, WAITERS], A, '90000'),
  call('delete', [LOCK], A),
  call('downgrade', ALL, A, '0', '7'),
  call('extend', [LOCK], A, '90000'),
  call('extend_share', [LOCK, SHARED], A, '90000'),
  call('force', ALL, C, '0', '', A),
  call('force', ALL, C, '0', 'foreign', ''),
  call('free', [LOCK], A),
  call('free_share', [LOCK, SHARED], A),
  call('handoff_share', [LOCK, FENCE, SHARED, QUEUE], A, '0', 'hf1.a.2', TTL, '9'),
  call('inspect', [LOCK, QUEUE, WAITERS, SHARED], '10'),
  call('keep_entry', [QUEUE, WAITERS], B),
  call('release', ALL, A, '0'),
  call('release', ALL, B, '0'),
  call('reserve', [LOCK, FENCE, QUEUE], A, '90000', '0', '2'),
  call('quorum/vote', [LOCK, FENCE], A, '1', TTL, '1', '0', '0'),
  call('quorum/write_fence', [LOCK, FENCE], A, '1', '9'),
  call('quorum/copy_lock', [LOCK, FENCE], A, TTL, '9'),
  call('quorum/withdraw', [LOCK], A, INBOX),
];

/** The commands that services are known to refuse to scripts: test/support/restricted.ts has the sources. */
const REFUSABLE = ['time', 'publish', 'pubsub'];

const server = serverOfFile();

/** A user who may run everything but one command. */
async function without(command: string): Promise<Redis> {
  const { admin } = server;
  await admin.call('ACL', 'SETUSER', command, 'on', '>pw', '~*', '&*', '+@all', `-${command}`);
  return server.client({ username: command, password: 'pw' });
}

function run(redis: Redis, { script, keys, args }: Call): Promise<unknown> {
  return redis.eval(source(script), keys.length, ...keys, ...args);
}

/** Everything in the server, without times to live. */
async function data(): Promise<Record<string, string>> {
  const keys = (await server.admin.keys('*')).sort();
  const values = keys.map(async (key) => [
    key,
    (await server.admin.dumpBuffer(key)).toString('hex'),
  ]);
  return Object.fromEntries(await Promise.all(values));
}

for (const command of REFUSABLE) {
  test(`without ${command.toUpperCase()}: what fails has changed nothing`, async () => {
    const limited = await without(command);
    const broken: string[] = [];
    let failed = 0;
    for (const [state, history] of Object.entries(STATES)) {
      for (const each of CALLS) {
        await server.admin.flushall();
        for (const earlier of history) await run(server.admin, earlier);
        const old = await data();
        const reply = await run(limited, each).catch((error: unknown) => error);
        if (!(reply instanceof Error)) continue;
        failed += 1;
        assert.match(reply.message, /NOPERM|permission|can't run/i);
        try {
          assert.deepEqual(await data(), old);
        } catch {
          broken.push(`${state}: ${each.script} ${each.args.join(' ')}`);
        }
      }
    }
    limited.disconnect();
    assert.deepEqual(broken, []);
    assert.equal(failed > 0, command === 'time', 'messages are no reason to fail');
  });
}
