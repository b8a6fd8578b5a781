/** `holdfast migrate` on packages: where a file may name one, and what keeps it from moving to its drop-in. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { folderOf, read, reportOf } from './support.js';

const REDLOCK = '{"dependencies":{"redlock":"^5.0.0"}}';

/** Lines that name a package in place of importing it whole, and whether they make a lock of the report. */
const NAMES: readonly (readonly [line: string, isLock: boolean])[] = [
  ["export { default } from 'redlock';", true],
  ["export * from 'redlock';", true],
  ["export type { Settings } from 'redlock';", false],
  ["import type { Settings } from 'redlock';", false],
  ["import { type Settings } from 'redlock';", false],
  ["import { type Settings, type Lock } from 'redlock';", false],
  ["import { type Settings, Lock } from 'redlock';", true],
  ["import redlock = require('redlock');", true],
  ["const { Lock, ...rest } = require('redlock');", true],
  ["const later = () => import('redlock');", true],
  ["vi.mock('redlock');", false],
];

test('each way to name a package moves to the drop-in, and is told if it is there at run time', async () => {
  const files = NAMES.map(([line], i) => [`${i}.ts`, `${line}\n`]);
  const folder = folderOf({ 'package.json': REDLOCK, ...Object.fromEntries(files) });
  const { found, changed } = await reportOf(folder, '--write');
  assert.equal(changed.length, NAMES.length + 1);
  for (const [i, [line]] of NAMES.entries())
    assert.equal(read(folder, `${i}.ts`), `${line.replace("redlock'", "holdfast/redlock'")}\n`);
  assert.deepEqual(
    found.map(({ path }) => path),
    NAMES.flatMap(([, isLock], i) => (isLock ? [`${i}.ts`] : [])),
  );
});

test('a text that is the name of a package is no use of it', async () => {
  const text =
    "log('redlock');\nlog('from', require, 'redlock');\nconst a = ['redlock'];\njest.mock(file, 'redlock');\n";
  const folder = folderOf({ 'package.json': REDLOCK, 'a.js': text });
  const { found, changes } = await reportOf(folder);
  assert.deepEqual([found, changes], [[], []]);
});

const NEW = 'new Redlock([client]';

/** Code that the drop-in of a package does not run, and what the report says of it. */
const OBSTACLES: readonly (readonly [name: string, code: string, advice: RegExp])[] = [
  ['redis-semaphore', "import semaphores from 'redis-semaphore';", /has no default$/],
  ['redlock', "import { Queue } from 'redlock';", /holdfast\/redlock has no Queue$/],
  ['redlock', "const { Queue } = require('redlock');", /has no Queue$/],
  ['redlock', "const Queue = require('redlock').Queue;", /has no Queue$/],
  ['redlock', "export { Queue } from 'redlock';", /has no Queue$/],
  ['redlock', `import Redlock from 'redlock';\n${NEW}, {}, scripts);`, /takes no scripts$/],
  [
    'redlock',
    `import Redlock from 'redlock';\n${NEW});\nnew Redis({ natMap });`,
    /refuses clients with natMap$/,
  ],
  [
    '@sesamecare-oss/redlock',
    `import Redlock from '@sesamecare-oss/redlock';\n${NEW});\nnew Redis({ db: 2 });`,
    /in the database 0 whatever the client says$/,
  ],
  [
    'redis-semaphore',
    "import { Mutex } from 'redis-semaphore';\nnew Mutex(client, 'a', { onLost });",
    /takes no option onLost$/,
  ],
];

/** The same code as far as the drop-in runs it. */
const MOVES: readonly (readonly [name: string, code: string])[] = [
  ['redis-semaphore', "import * as semaphores from 'redis-semaphore';"],
  ['redlock', `import * as all from 'redlock';\n${NEW}, {});`],
  ['redlock', `import Redlock from 'redlock';\n${NEW}, { retryCount: 3, ...more });`],
  ['redlock', `import Redlock from 'redlock';\n${NEW});\nnew Redis({ db: 2 });`],
  ['@sesamecare-oss/redlock', `import Redlock from '@sesamecare-oss/redlock';\n${NEW});`],
  ['redis-semaphore', "import { Mutex } from 'redis-semaphore';\nnew Mutex(client, 'a');"],
];

test('code that a drop-in does not run stays, and the report says why', async () => {
  for (const [name, code, advice] of OBSTACLES) {
    const folder = folderOf({
      'package.json': `{"dependencies":{"${name}":"^5.0.0"}}`,
      'a.ts': code,
    });
    const { found, changes } = await reportOf(folder, '--write');
    assert.deepEqual([changes, read(folder, 'a.ts')], [[], code]);
    assert.match(found[0]?.locks[0]?.advice ?? '', advice, code);
  }
});

test('a function that is named like a method of a package is no use of it', async () => {
  const folder = folderOf({
    'a.js':
      "import { Mutex } from 'redis-semaphore';\nexport const mutex = (c) => new Mutex(c, 'a');\nasync function f() {\n  await acquire();\n  await work();\n  await release();\n}\n",
  });
  const { found } = await reportOf(folder);
  assert.deepEqual(
    found[0]?.locks.map(({ by, findings }) => [by, findings]),
    [['redis-semaphore', []]],
  );
});

test('a package.json that is no JSON names no package: the one above it does', async () => {
  const folder = folderOf({
    'package.json': REDLOCK,
    'lib/package.json': '{ "dependencies": ',
    'lib/a.js': "import Redlock from 'redlock';\n",
  });
  const { changed } = await reportOf(folder, '--write');
  assert.deepEqual(changed, ['lib/a.js', 'package.json']);
});

test('code that a drop-in runs moves', async () => {
  for (const [name, code] of MOVES) {
    const folder = folderOf({
      'package.json': `{"dependencies":{"${name}":"^5.0.0"}}`,
      'a.ts': code,
    });
    const { changed } = await reportOf(folder, '--write');
    assert.deepEqual(changed, ['a.ts', 'package.json'], code);
  }
});
