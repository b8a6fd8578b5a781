/** The installed package in bundles. docs/platforms.md has what each bundler needs. */

import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched } from '../support/fetched.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;
let folder: string;
let esbuild: string;

const PROGRAM = `async function main() {
  const { connect } = require('holdfast');
  const locks = await connect('memory:');
  const lock = await locks.acquire('item:42');
  console.log(lock.held, await lock.release());
  await locks.close();
}
main().catch((error) => console.log(error.name, error.code, error.message));
`;

/** The entry points beside the main one that need nothing but the package. */
const BESIDE = `console.log(
  typeof require('holdfast/redlock').default,
  typeof require('holdfast/redlock4'),
  typeof require('holdfast/redis-semaphore').Mutex,
  typeof require('holdfast/fence').checkFence,
  typeof require('holdfast/idempotency').memoryStore,
  typeof require('holdfast/bullmq').oneAtATime,
  typeof require('holdfast/node-cron').runCoordinator,
);
`;

before(async () => {
  packed = await Packed.start();
  folder = await packed.installed('bundled');
  writeFileSync(join(folder, 'shop.js'), PROGRAM);
  writeFileSync(join(folder, 'beside.js'), BESIDE);
  esbuild = await fetched('esbuild@0.28', 'bin/esbuild');
});

after(() => packed.stop());

/** Bundles the program and answers the folder of the bundle. */
async function bundled(name: string, ...args: string[]): Promise<string> {
  const to = join(folder, name);
  await succeeds(
    esbuild,
    ['shop.js', 'beside.js', '--bundle', '--platform=node', `--outdir=${to}`, ...args],
    folder,
  );
  return to;
}

test('esbuild, with holdfast as an external dependency', async () => {
  const bundle = await bundled('external', '--external:holdfast');
  assert.equal(await succeeds(process.execPath, [join(bundle, 'shop.js')]), 'true true\n');
  const beside = readFileSync(join(bundle, 'beside.js'), 'utf8');
  assert.match(beside, /require\("holdfast\/redlock"\)/, 'not bundled');
  const said = await succeeds(process.execPath, [join(bundle, 'beside.js')]);
  assert.equal(said, `${Array(7).fill('function').join(' ')}\n`);
});

test('esbuild, with the addon copied beside the bundle, away from node_modules', async () => {
  const bundle = await bundled('copied', '--loader:.node=copy');
  const away = join(packed.folder, 'away');
  cpSync(bundle, away, { recursive: true });
  assert.equal(await succeeds(process.execPath, ['shop.js'], away), 'true true\n');
});

test('esbuild, with a path in place of the addon: the error says how to bundle', async () => {
  const bundle = await bundled('path', '--loader:.node=file');
  const said = await succeeds(process.execPath, [join(bundle, 'shop.js')]);
  assert.match(
    said,
    /^LockLoadError ERR_LOCK_NATIVE_LOAD .*--external:holdfast.*--loader:\.node=copy/,
  );
});
