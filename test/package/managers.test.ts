/** The package from a registry, by the package managers that people use. */

import assert from 'node:assert/strict';
import { delimiter, dirname } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched, nodeOf } from '../support/fetched.js';
import { bun, MANAGERS, type Manager, prepare, SAYS } from './managers.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;

before(async () => {
  packed = await Packed.start();
});

after(() => packed.stop());

/** The steps of a user who has only Node and a package manager: no compiler is on PATH. */
async function installs(manager: Manager): Promise<void> {
  const node = await nodeOf(22);
  const programs = manager === bun ? [dirname(await fetched('bun@1', 'bin/bun'))] : [];
  const PATH = [...programs, dirname(node), '/usr/bin', '/bin'].join(delimiter);
  const folder = packed.project(manager.name.replaceAll(/\W+/g, '-'));
  prepare(manager, folder, packed.registry.url);
  const [program = '', ...args] = [...(await manager.command()), ...manager.add];
  packed.registry.fetched.clear();
  const env = { ...packed.environment(folder), PATH };
  await succeeds('env', [program, ...args], folder, env);
  assert.equal(await succeeds(node, [...(manager.flags ?? []), 'a.cjs'], folder, { PATH }), SAYS);
  const taken = [...packed.registry.fetched].filter((name) => name.includes('/addon-'));
  if (!manager.fetchesAll) assert.deepEqual(taken, [packed.addonName]);
  assert.deepEqual(
    packed.registry.missed.filter((path) => path.includes('holdfast')),
    [],
  );
}

for (const manager of [...MANAGERS, bun]) {
  test(`${manager.name} installs the addon of this platform`, () => installs(manager));
}
