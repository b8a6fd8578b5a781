/** What takes a manager takes one that connects by itself, as its first use. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectLazily, type LockManager } from 'holdfast';
import { fetchIdempotency, memoryStore } from 'holdfast/idempotency';
import { runCoordinator } from 'holdfast/node-cron';

const USES: Record<string, (locks: LockManager) => Promise<void>> = {
  async runOnce(locks) {
    assert.equal((await locks.runOnce('report', { every: '1h' }, () => 42)).ran, true);
  },
  async lead(locks) {
    const stop = new AbortController();
    await locks
      .lead('scheduler', { signal: stop.signal }, () => stop.abort())
      .catch((error) => {
        assert.equal(error, stop.signal.reason);
      });
  },
  async 'node-cron'(locks) {
    const coordinator = runCoordinator(locks);
    assert.equal(await coordinator.shouldRun('report:1', 1_000), true);
    assert.equal(await coordinator.shouldRun('report:1', 1_000), false);
  },
  async idempotency(locks) {
    const once = fetchIdempotency({ locks, store: memoryStore(), scope: () => 'all' });
    let runs = 0;
    const ask = () => {
      const headers = { 'idempotency-key': 'a'.repeat(20) };
      const request = new Request('http://shop/', { method: 'POST', headers, body: '{}' });
      return once(request, () => new Response(`${++runs}`));
    };
    assert.deepEqual([await (await ask()).text(), await (await ask()).text()], ['1', '1']);
  },
};

for (const [name, use] of Object.entries(USES)) {
  test(`${name}: its first call connects a lazy manager`, { timeout: 20_000 }, async () => {
    const locks = connectLazily('memory:');
    await use(locks);
    await locks.close();
  });
}
