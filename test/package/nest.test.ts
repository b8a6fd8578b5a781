/** The module for Nest, with each major version of Nest that the page names. */

import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetchedFolder } from '../support/fetched.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;

before(async () => {
  packed = await Packed.start();
});

after(() => packed.stop());

const PROGRAM = `
require('reflect-metadata');
const { Injectable, Module } = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');
const { currentLock, currentSlot, HoldfastModule, Lock, Once } = require('holdfast/nest');

class Shop {
  async sell(item) { return currentLock().name; }
  async report() { return currentSlot(); }
}
for (const [name, decorator] of [['sell', Lock('item:\${0}')], ['report', Once('report', { slot: 'a' })]]) {
  const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, name);
  decorator(Shop.prototype, name, descriptor);
  Object.defineProperty(Shop.prototype, name, descriptor);
}
Injectable()(Shop);
class App {}
Module({ imports: [HoldfastModule.forTest()], providers: [Shop] })(App);

NestFactory.createApplicationContext(App, { logger: false }).then(async (app) => {
  const shop = app.get(Shop);
  console.log(await shop.sell(42), await shop.report(), await shop.report());
  await app.close();
});
`;

for (const version of [10, 11, 12]) {
  test(`Nest ${version}`, async () => {
    const folder = packed.project(`nest-${version}`);
    const modules = join(folder, 'node_modules');
    mkdirSync(join(modules, 'holdfast'), { recursive: true });
    const tarballs = [
      [packed.main, join(modules, 'holdfast')],
      [packed.addon, join(modules, packed.addonName)],
    ] as const;
    for (const [tarball, into] of tarballs) {
      mkdirSync(into, { recursive: true });
      await succeeds('tar', ['-xzf', tarball, '-C', into, '--strip-components=1']);
    }
    const nest = ['@nestjs/common', '@nestjs/core'].map((name) => `${name}@${version}`);
    const others = await fetchedFolder(...nest, 'reflect-metadata@0.2', 'rxjs@7', 'croner@11');
    for (const name of readdirSync(join(others, 'node_modules'))) {
      if (!name.startsWith('.'))
        symlinkSync(join(others, 'node_modules', name), join(modules, name));
    }
    writeFileSync(join(folder, 'app.cjs'), PROGRAM);
    assert.equal(await succeeds(process.execPath, ['app.cjs'], folder), 'item:42 a undefined\n');
  });
}
