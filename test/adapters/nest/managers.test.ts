/** Decorated methods of an application with two managers. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LockManager } from 'holdfast';
import { HoldfastModule, Lock, lockManagerToken } from 'holdfast/nest';

test('a method takes its lock at the manager that its options name', async () => {
  let atBoth: (() => Promise<number[]>) | undefined;
  @Injectable()
  class Stock {
    @Lock('item', { manager: 'other' })
    async sell(): Promise<number[]> {
      return (await atBoth?.()) ?? [];
    }
  }
  const imports = [HoldfastModule.forTest(), HoldfastModule.forTest('other')];
  const module = { module: class App {}, imports, providers: [Stock] };
  const app = await NestFactory.createApplicationContext(module, { logger: false });
  const managers: LockManager[] = [app.get(LockManager), app.get(lockManagerToken('other'))];
  atBoth = () => Promise.all(managers.map(async (each) => (await each.query()).held.length));
  assert.deepEqual(await app.get(Stock).sell(), [0, 1]);
  await app.close();
});
