/** A single executable of Node that takes a lock: examples/executable, with the package beside it. */

import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { fetched, nodeOf } from '../support/fetched.js';
import { removeFolder } from '../support/folders.js';
import { Packed, succeeds } from './packed.js';

const EXAMPLE = join(ROOT, 'examples', 'executable');
/** What Node's documentation says to mark the place with. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

let packed: Packed;

before(async () => {
  packed = await Packed.start();
});

after(() => packed.stop());

test('a single executable loads the package that lies beside it, and fails without', async () => {
  const node = await nodeOf(22);
  const postject = await fetched('postject@1.0.0-alpha.6', 'dist/cli.js');
  const folder = await packed.installed('executable');
  cpSync(EXAMPLE, folder, { recursive: true });
  await succeeds(node, ['--experimental-sea-config', 'sea-config.json'], folder);
  const program = join(folder, 'shop');
  copyFileSync(node, program);
  chmodSync(program, 0o755);
  const inject = [program, 'NODE_SEA_BLOB', 'shop.blob', '--sentinel-fuse', FUSE];
  await succeeds(node, [postject, ...inject], folder);
  rmSync(join(folder, 'shop.cjs'));
  assert.match(await succeeds(program, [], folder), /^sold under \d+\n$/);
  removeFolder(join(folder, 'node_modules', 'holdfast'));
  await assert.rejects(succeeds(program, [], folder), /Cannot find module 'holdfast'/);
});
