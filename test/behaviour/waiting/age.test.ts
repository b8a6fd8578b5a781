/** What a timeout error says about the age of a hold elsewhere, which the owner token tells. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, type LockManager } from '../../support/holdfast.js';
import { serverOfFile } from '../../support/server-of-file.js';

const HOUR_MS = 3_600_000;

let locks: LockManager;

const server = serverOfFile({}, async () => {
  locks = await connect(server.url);
});

/** The token of a manager that began `age` ms ago, and asked for its lock 1 ms later. */
function tokenOf(age: number): string {
  const start = (Date.now() - age - 1).toString(16).padStart(12, '0');
  return `hf1.${start}7000800000000000000a.250.web-1`;
}

async function messageFor(holder: string): Promise<string> {
  await server.admin.set('lock:a', holder, 'PX', 60_000);
  const error = await locks.acquire('a', { wait: 0 }).catch((reason) => reason);
  return error.message;
}

test('a hold of hours is told with its age at most', async () => {
  const message = await messageFor(tokenOf(3 * HOUR_MS));
  assert.match(message, /: it has been held for up to 3h0\dm by "web-1", and its lease ends in \d/);
});

test('a young hold, and a token without a time, are told without', async () => {
  for (const holder of [tokenOf(0), tokenOf(-HOUR_MS), 'hf1.c.1.web-1']) {
    assert.match(
      await messageFor(holder),
      /: it is held by "web-1", and its lease ends in /,
      holder,
    );
  }
});
