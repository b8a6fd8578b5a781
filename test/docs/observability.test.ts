/** What docs/observability.md shows. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { RedisServer } from '../support/server.js';
import { blocksOf } from './blocks.js';
import { printedBy } from './programs.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

const surroundings = () => ({
  env: { REDIS_URL: server.url },
  instead: {},
  stage: 'test/docs/stage.mjs',
});

runPage('docs/observability.md', {
  surroundings,
  otherwise: {
    promtool: { because: 'test/metrics/monitoring.test.ts runs it' },
  },
});

/** Acquires with every outcome, of one lock and of several, and of each reason that a signal may have. */
const OUTCOMES = `
const held = await others.acquire('b')
const ways = { wait: 20 }
for (const name of ['b', ['a', 'b']]) {
  await locks.tryAcquire(name)
  await locks.acquire(name, ways).catch(() => {})
  for (const reason of [undefined, null, 20, new Error('gone')]) {
    const abort = new AbortController()
    const waiting = locks.acquire(name, { signal: abort.signal })
    abort.abort(reason)
    await waiting.catch(() => {})
  }
}
await held.release()
await (await locks.acquire(['a', 'b'])).release()
await locks.close()
await locks.acquire('b').catch(() => {})
`;

test('the subscriber that the page prints survives each outcome', async () => {
  const block = blocksOf('docs/observability.md').find(({ code }) => code.includes('subscribe('));
  assert.ok(block !== undefined);
  const printed = await printedBy({ ...block, code: block.code + OUTCOMES }, surroundings());
  const inVain = ['taken', 'ERR_LOCK_TIMEOUT', ...Array(4).fill('aborted')];
  assert.deepEqual(printed.trimEnd().split('\n'), [
    'item:42 acquired',
    'b acquired',
    ...inVain.map((outcome) => `b ${outcome}`),
    ...inVain.map((outcome) => `a, b ${outcome}`),
    'a, b acquired',
    'b ERR_LOCK_CLOSED',
  ]);
});
