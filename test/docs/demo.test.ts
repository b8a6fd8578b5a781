/** The demo where there is no server: it says so, and keeps every promise in one process. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../support/child.js';

interface Ended {
  readonly code: number | null;
  readonly lines: readonly string[];
}

function demo(env: NodeJS.ProcessEnv): Promise<Ended> {
  const child = spawn(process.execPath, [join(ROOT, 'demo', 'main.mjs')], {
    cwd: ROOT,
    // A folder without programs: nothing of this machine can be found.
    env: { PATH: join(ROOT, 'demo'), ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (chunk) => {
    said += chunk;
  });
  return new Promise((resolve) => {
    child.once('close', (code) => resolve({ code, lines: said.split('\n') }));
  });
}

/** What must be among the lines, in this order. */
function assertSays({ lines }: Ended, wanted: readonly RegExp[]): void {
  let at = 0;
  for (const pattern of wanted) {
    const found = lines.findIndex((line, i) => i >= at && pattern.test(line));
    assert.ok(found >= 0, `${pattern} is missing in\n${lines.slice(at).join('\n')}`);
    at = found + 1;
  }
}

test('without a server the demo runs in one process, says so, and ends well', async () => {
  const ended = await demo({});
  assertSays(ended, [
    /^No Redis here, so the demo runs inside this process, on memory:\./,
    /server +none; memory:demo/,
    /buyers +tasks of this process/,
    /Flash sale without a lock/,
    /oversold by \d+/,
    /Flash sale with holdfast/,
    /sold +100 of 100 items, to 100 buyers/,
    /\[ok\] exactly 100 sold, each item once, none lost/,
    /\[ok\] exactly one of 10 had the lock/,
    /by timer +lost/,
    /\[ok\] holdfast renewed its lock from a thread of its own/,
    /\[ok\] holdfast kept every promise/,
  ]);
  assert.equal(ended.code, 0);
});

test('a server that is named but does not answer is an error, and no reason to do without', async () => {
  const ended = await demo({ REDIS_URL: 'redis://127.0.0.1:1' });
  assertSays(ended, [/cannot connect to redis:\/\/127\.0\.0\.1:1/, /named by REDIS_URL/]);
  assert.equal(ended.code, 1);
});
