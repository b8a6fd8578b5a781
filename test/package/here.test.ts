/** The one tarball of `npm run package`, installed from its file into an empty folder, by those who have no Rust. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched, nodeOf } from '../support/fetched.js';
import { RedisServer } from '../support/server.js';
import { bun, MANAGERS, type Manager, prepare } from './managers.js';
import { Packed, packHere, succeeds } from './packed.js';

let packed: Packed;
let tarball: string;
let server: RedisServer;

before(async () => {
  [packed, server] = [await Packed.start(), await RedisServer.start()];
  tarball = packHere(join(packed.folder, 'here'));
});

after(() => Promise.all([packed.stop(), server.stop()]));

/** The quick start of the README that is in the tarball. */
async function quickStart(): Promise<string> {
  const readme = await succeeds('tar', ['-xzOf', tarball, 'package/README.md']);
  const [, code = ''] = /^## Quick start\n\n```js\n(.*?)^```$/ms.exec(readme) ?? [];
  assert.ok(code.includes("import { connect } from 'holdfast'"));
  return code.replaceAll('redis://127.0.0.1:6379', server.url);
}

/** A user with only Node and a package manager installs the file, and runs the quick start as it is printed. */
async function starts(manager: Manager): Promise<void> {
  const node = await nodeOf(22);
  const programs = manager === bun ? [dirname(await fetched('bun@1', 'bin/bun'))] : [];
  const PATH = [...programs, dirname(node), '/usr/bin', '/bin'].join(delimiter);
  const folder = packed.project(`here-${manager.name.replaceAll(/\W+/g, '-')}`);
  prepare(manager, folder, packed.registry.url);
  const add = manager.add.map((word) => (word === 'holdfast' ? `holdfast@file:${tarball}` : word));
  const [program = '', ...args] = [...(await manager.command()), ...add];
  await succeeds('env', [program, ...args], folder, { ...packed.environment(folder), PATH });
  writeFileSync(join(folder, 'quick.mjs'), await quickStart());
  const said = await succeeds(
    node,
    [...(manager.flags ?? []), ...loader(manager), 'quick.mjs'],
    folder,
    { PATH },
  );
  assert.match(said, /^fence \d+$/m);
}

/** Yarn's Plug'n'Play resolves imports by a loader. */
function loader({ flags }: Manager): string[] {
  return flags === undefined ? [] : ['--experimental-loader', './.pnp.loader.mjs'];
}

for (const manager of [...MANAGERS, bun]) {
  test(`${manager.name} installs the tarball, and the quick start runs`, () => starts(manager));
}

test('it names no other package, and has no link that leads nowhere', async () => {
  const read = (file: string) => succeeds('tar', ['-xzOf', tarball, `package/${file}`]);
  const { optionalDependencies, scripts } = JSON.parse(await read('package.json'));
  assert.deepEqual([optionalDependencies, scripts], [undefined, undefined]);
  const files = (await succeeds('tar', ['-tzf', tarball])).trim().split('\n');
  const links = Array.from((await read('README.md')).matchAll(/\]\(([^)\s]+)\)/g), ([, to]) => to);
  for (const link of links) {
    assert.ok(
      /^https:|^#/.test(link ?? '') || files.includes(`package/${link?.split('#')[0]}`),
      link,
    );
  }
});
