/** The package from a registry, by the package managers that people use. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched, nodeOf } from '../support/fetched.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;

before(async () => {
  packed = await Packed.start();
});

after(() => packed.stop());

const PROGRAM = `import { connect } from 'holdfast';
const locks = await connect('memory:');
const lock = await locks.acquire('item:42');
console.log(lock.held, await lock.release());
await locks.close();
`;

/** The steps of a user who has only Node: no compiler is on PATH. */
async function installs(name: string, command: readonly string[]): Promise<void> {
  const node = await nodeOf(22);
  const folder = packed.project(name);
  writeFileSync(join(folder, 'a.mjs'), PROGRAM);
  const [program = '', ...args] = command;
  const PATH = [dirname(node), '/usr/bin', '/bin'].join(delimiter);
  await succeeds(program, args, folder, { ...packed.environment(folder), PATH });
  assert.equal(await succeeds(node, ['a.mjs'], folder, { PATH }), 'true true\n');
  assert.deepEqual(
    packed.registry.missed.filter((path) => path.includes('holdfast')),
    [],
  );
}

for (const major of [11, 12]) {
  test(`npm ${major}`, async () => {
    const npm = await fetched(`npm@${major}`, 'bin/npm-cli.js');
    const install = ['install', '--no-audit', '--no-fund', 'holdfast'];
    await installs(`npm-${major}`, [await nodeOf(22), npm, ...install]);
  });
}

test('pnpm', async () => {
  const pnpm = await fetched('pnpm@11', 'pnpm.mjs');
  await installs('pnpm', [await nodeOf(22), pnpm, 'add', 'holdfast']);
});

test('bun', async () => {
  await installs('bun', [await fetched('bun@1', 'bin/bun'), 'add', 'holdfast']);
});
