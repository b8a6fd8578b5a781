/** What takes a manager takes one that connects by itself, as its first use. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { connectLazily, LockManager } from 'holdfast';
import { fetchIdempotency, memoryStore } from 'holdfast/idempotency';
import { currentLock, Lock, lockManagerToken } from 'holdfast/nest';
import { runCoordinator } from 'holdfast/node-cron';
import { fetchLockUi } from 'holdfast/ui';

@Injectable()
class Stock {
  @Lock('item:${0}')
  async sell(item: string): Promise<string> {
    return `${item} under ${currentLock().name}`;
  }
}

@Module({})
class Shop {}

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
  // Its module connects as the application starts; a provider of one's own may give it another manager.
  async nest(locks) {
    const manager = { provide: lockManagerToken(), useValue: locks };
    const module = { module: Shop, providers: [manager, Stock] };
    const app = await NestFactory.createApplicationContext(module, { logger: false });
    assert.equal(app.get(LockManager), locks);
    assert.equal(await app.get(Stock).sell('42'), '42 under item:42');
    await app.close();
  },
  async page(locks) {
    const ui = fetchLockUi({ locks });
    const { body } = await ui(new Request('http://localhost/events'));
    let text = '';
    for await (const piece of body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(piece).toString();
      if (text.includes('event: state')) break;
    }
    assert.match(text, /"rows":\[\]/);
    ui.close();
  },
};

for (const [name, use] of Object.entries(USES)) {
  test(`${name}: its first call connects a lazy manager`, { timeout: 20_000 }, async () => {
    const locks = connectLazily('memory:');
    await use(locks);
    await locks.close();
  });
}
