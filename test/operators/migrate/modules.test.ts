/** `holdfast migrate` across files: clients, scripts and names that a file takes from another one. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { folderOf, read, reportOf } from './support.js';

const CLIENT = "import { Redis } from 'ioredis';\nconst made = new Redis(process.env.REDIS_URL);\n";
const CLIENT_CJS =
  "const { createClient } = require('redis');\nconst made = createClient({ url: process.env.REDIS_URL });\n";

/** A lock that can be rewritten if `kv` is a client for sure; no word in it speaks of Redis. */
const LOCK = `export async function nightly(work) {
  const taken = await kv.set('nightly-lock', '1', 'PX', 900, 'NX');
  if (!taken) return;
  try {
    await work();
  } finally {
    await kv.del('nightly-lock');
  }
}
`;
const LOCK_CJS = LOCK.replace('export async', 'exports.nightly = async');

/** A file that exports a client, and the line by which another one takes it. */
const EXPORTS: Readonly<
  Record<string, readonly [line: string, files: Readonly<Record<string, string>>]>
> = {
  'a name': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export const kv = made;` },
  ],
  'another name': [
    "import { client as kv } from './store';",
    { 'store.ts': `${CLIENT}export { made as client };` },
  ],
  'a default': ["import kv from './store.mjs';", { 'store.mjs': `${CLIENT}export default made;` }],
  'a type that a build makes': [
    "import { kv } from './store.js';",
    { 'store.ts': `${CLIENT}export const kv: Redis = made;` },
  ],
  'another file': [
    "import { kv } from './lib';",
    {
      'lib/index.ts': "export * from './store';",
      'lib/store.ts': `${CLIENT}export { made as kv };`,
    },
  ],
  'another file, by name': [
    "import { kv } from './lib/index.js';",
    {
      'lib/index.js': "export { default as kv } from './store.js';",
      'lib/store.js': `${CLIENT}export default made;`,
    },
  ],
  'an import': [
    "import { kv } from './lib.js';",
    {
      'lib.js': "import made from './store.js';\nexport const kv = made;",
      'store.js': `${CLIENT}export default made;`,
    },
  ],
  'the folder of the sources': [
    "import { kv } from '@/store';",
    { 'src/store.ts': `${CLIENT}export const kv = made;` },
  ],
  'a function that makes it': [
    "import { open } from './store.js';\nconst kv = open('locks');",
    { 'store.js': `${CLIENT}export function open() {\n  return made;\n}` },
  ],
  'a property of a default': [
    "import store from './store.js';\nconst kv = store.open();",
    { 'store.js': `${CLIENT}const open = () => made;\nexport default { open };` },
  ],
  'a default of CommonJS': [
    "import kv from './store.cjs';",
    { 'store.cjs': `${CLIENT_CJS}module.exports = made;` },
  ],
  'the second of two files': [
    "import { kv } from './lib.js';",
    {
      'lib.js': "export * from './none.js';\nexport * from './store.js';",
      'none.js': 'export const none = 0;',
      'store.js': `${CLIENT}export const kv = made;`,
    },
  ],
  'a circle of other files': [
    "import { kv } from './store.js';",
    {
      'store.js': `${CLIENT}import './more.js';\nexport const kv = made;`,
      'more.js': "import './store.js';",
    },
  ],
  'a namespace': [
    "import * as store from './store.js';\nconst kv = store.open();",
    { 'store.js': `${CLIENT}export const open = () => made;` },
  ],
  'a function that returns it at its end': [
    "import { open } from './store.js';\nconst kv = open();",
    {
      'store.js': `${CLIENT}export function open() {\n  made.on('error', () => {\n    return 1;\n  });\n  return made;\n}`,
    },
  ],
  'a copy of a client': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export const kv = new Redis(process.env.OTHER_URL).duplicate();` },
  ],
  'a client in place of none': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export const kv = given ?? made;` },
  ],
  'one client for all reloads': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export const kv = globalThis.kept ?? (globalThis.kept = made);` },
  ],
};

/** The same for CommonJS. */
const REQUIRES: typeof EXPORTS = {
  'the module': [
    "const kv = require('./store');",
    { 'store.js': `${CLIENT_CJS}module.exports = made;` },
  ],
  'a property': [
    "const { kv } = require('./store');",
    { 'store.js': `${CLIENT_CJS}module.exports = { kv: made };` },
  ],
  'a property of the module': [
    "const { kv } = require('./store');",
    { 'store.js': `${CLIENT_CJS}module.exports.kv = made;` },
  ],
  'a property of its own': [
    "const kv = require('./store').kv;",
    { 'store.js': `${CLIENT_CJS}exports.kv = made;` },
  ],
  'a default': [
    "const kv = require('./store').default;",
    { 'store.js': `${CLIENT_CJS}exports.default = made;` },
  ],
};

for (const [lines, lock, name] of [
  [EXPORTS, LOCK, 'job.mjs'],
  [REQUIRES, LOCK_CJS, 'job.cjs'],
] as const) {
  for (const [what, [line, files]] of Object.entries(lines)) {
    test(`a client that another file exports is one: ${what}, ${name}`, async () => {
      const folder = folderOf({ ...files, [name]: `${line}\n${lock}` });
      const { found, changed } = await reportOf(folder, '--write');
      assert.deepEqual(
        found.map(({ path }) => path),
        [name],
      );
      assert.deepEqual(changed, [name]);
      const written = read(folder, name);
      assert.match(written, /const locks = connectLazily\(kv, \{ prefix: '' \}\)/);
      const empty = /^import .*$/.test(line) ? '\n' : '';
      assert.ok(written.indexOf(line) < written.indexOf(`;\n${empty}const locks`), written);
      assert.deepEqual((await reportOf(folder, '--write')).changes, []);
    });
  }
}

/** Exports that are no clients for sure. */
const UNSURE: typeof EXPORTS = {
  'a function that may make another': [
    "import { open } from './store.js';\nconst kv = open(true);",
    {
      'store.js': `${CLIENT}export const open = (no) => {\n  if (no) return new Map();\n  return made;\n};`,
    },
  ],
  'a function that changes the database': [
    "import { open } from './store.js';\nconst kv = open();",
    { 'store.js': `${CLIENT}export const open = () => made;\nmade.select(2);` },
  ],
  'a function that returns nothing': [
    "import { open } from './store.js';\nconst kv = open();",
    { 'store.js': `${CLIENT}export function open() {}` },
  ],
  'functions that call each other': [
    "import { open } from './store.js';\nconst kv = open();",
    {
      'store.js': `${CLIENT}export const open = () => again();\nexport const again = () => open();`,
    },
  ],
  'a Map in place of none': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export const kv = given ?? new Map();` },
  ],
  'a function that is no require': [
    "const kv = load('./store.js');",
    { 'store.js': `${CLIENT_CJS}module.exports = made;` },
  ],
  'the exports of another object': [
    "const kv = require('./store.js');",
    { 'store.js': `${CLIENT_CJS}other.exports = made;` },
  ],
  'another property of the module': [
    "const kv = require('./store.js');",
    { 'store.js': `${CLIENT_CJS}module.kv = made;` },
  ],
  'a property of another object': [
    "const { kv } = require('./store.js');",
    { 'store.js': `${CLIENT_CJS}own.kv = made;\nother.exports.kv = made;\nmodule.own.kv = made;` },
  ],
  'a file that is not there': ["import { kv } from '@/store';", {}],
  'a Map': ["import { kv } from './store.js';", { 'store.js': 'export const kv = new Map();' }],
  'set later': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}export let kv;\nexport const open = () => (kv = made);` },
  ],
  'in another database': [
    "import { kv } from './store.js';",
    { 'store.js': `${CLIENT}made.select(3);\nexport const kv = made;` },
  ],
  'a circle of imports': [
    "import { kv } from './store.js';",
    {
      'store.js': `${CLIENT}import './more.js';\nexport const kv = made;`,
      'more.js': "import { nightly } from './job.mjs';",
    },
  ],
  'a folder that .gitignore names': [
    "import { kv } from './out/store.js';",
    { '.gitignore': 'out/', 'out/store.js': `${CLIENT}export const kv = made;` },
  ],
};

for (const [what, [line, files]] of Object.entries(UNSURE)) {
  test(`a lock stays whose client is not known: ${what}`, async () => {
    const text = `${line}\n${LOCK}`;
    const folder = folderOf({ ...files, 'job.mjs': text });
    const { found, changed } = await reportOf(folder, '--write');
    assert.equal(found.length, 1);
    assert.deepEqual([changed, read(folder, 'job.mjs')], [[], text]);
  });
}

test('a module that TypeScript requires is one, and a part of a namespace is none', async () => {
  const folder = folderOf({
    'store.ts': `${CLIENT}export const open = () => made;\n`,
    'job.ts': `import store = require('./store');\nimport Kept = store.open;\nconst own = store.open();\n${LOCK.replaceAll('kv', 'own')}`,
    'part.ts': `import store = require('./store');\nimport kv = store.open;\n${LOCK}`,
  });
  const { found, unread } = await reportOf(folder);
  assert.deepEqual(
    [found.map(({ path, locks }) => [path, locks[0]?.rewritten]), unread],
    [
      [
        ['job.ts', true],
        ['part.ts', false],
      ],
      [],
    ],
  );
});

test('files that hand on what each other hands on tell nothing, and are read', async () => {
  for (const what of ['{ kv }', '*', '{ kv as default, default as kv }']) {
    const folder = folderOf({
      'a.js': `export ${what} from './b.js';\n`,
      'b.js': `export ${what} from './a.js';\n`,
      'job.js': `import { kv } from './a.js';\n${LOCK}`,
    });
    const { found, changed, unread } = await reportOf(folder, '--write');
    assert.deepEqual([found.length, changed, unread], [1, [], []], what);
  }
});

/** A look and a write, which count only if they go to Redis. */
const LOOKS = `export async function take(seat) {
  const key = 'seat-lock:' + seat;
  if (await CLIENT.get(key)) return false;
  await CLIENT.set(key, me, 'EX', 30);
  return true;
}
export const free = (seat) => CLIENT.del('seat-lock:' + seat);
`;

test('a look and a write at a client of another file are a lock, and at a Map are none', async () => {
  const folder = folderOf({
    'store.js': `${CLIENT}export const kv = made;\nexport const map = new Map();`,
    'a.js': `import { kv } from './store.js';\n${LOOKS.replaceAll('CLIENT', 'kv')}`,
    'b.js': `import { map } from './store.js';\n${LOOKS.replaceAll('CLIENT', 'map')}`,
    'c.ts': `import type { Redis } from 'ioredis';
export class Seats {
  constructor(private readonly kv: Redis) {}
  ${LOOKS.replaceAll('CLIENT', 'this.kv').replace('export async function take', 'async take').replace('export const free = (seat) =>', 'free = (seat: string) =>')}}
`,
  });
  const { found } = await reportOf(folder);
  assert.deepEqual(
    found.map(({ path, locks }) => [path, locks.map(({ findings }) => findings[0]?.rule)]),
    [
      ['a.js', ['check-then-set']],
      ['c.ts', ['check-then-set']],
    ],
  );
});

test('a script and a key that another file has are read', async () => {
  const folder = folderOf({
    'lua.js':
      'export const FREE = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end`;\nexport const KEY = "nightly-lock";',
    'a.js': `import { FREE, KEY } from './lua.js';
export async function once(run) {
  if (!(await store.set(KEY, me, 'PX', 900, 'NX'))) return;
  try {
    await run();
  } finally {
    await store.eval(FREE, 1, KEY, me);
  }
}
`,
  });
  const { found } = await reportOf(folder);
  assert.deepEqual(
    found.map(({ path, locks }) => [path, locks[0]?.findings.map(({ rule }) => rule)]),
    [['a.js', ['no-renewal']]],
  );
});

test('only a file that may return from itself is changed if it does', async () => {
  const returns = `${CLIENT_CJS}if (process.argv[2] === 'no') return;\n${LOCK_CJS.replaceAll('kv', 'made')}`;
  const folder = folderOf({
    'a.cjs': returns,
    'b.js': returns,
    'c.mjs': returns,
    'd.ts': returns,
    'e.js': `${CLIENT}if (process.argv[2] === 'no') return;\n${LOCK.replaceAll('kv', 'made')}`,
  });
  const { found, changed } = await reportOf(folder, '--write');
  assert.equal(found.length, 5);
  assert.deepEqual(changed, ['a.cjs', 'b.js']);
});

test('a file that does not name Redis takes locks of a client of another file, and of no other', async () => {
  const blind = (name: string, from: string) => `import { ${name} } from '${from}';
export const acquireLock = (key, me) => ${name}.set(key, me, 'EX', 9);
export const releaseLock = (key) => ${name}.del(key);
`;
  const check = (name: string, from: string) => `import { ${name} } from '${from}';
export async function enter(me) {
  if (!(await ${name}.get('lock:door'))) await ${name}.set('lock:door', me, 'EX', 9);
}
export const leave = () => ${name}.del('lock:door');
`;
  const { found } = await reportOf(
    folderOf({
      'place.js': "import { Redis } from 'ioredis';\nexport const box = new Redis();\n",
      'blind.js': blind('box', './place.js'),
      'check.js': check('box', './place.js'),
      'other-blind.js': blind('shelf', './unknown.js'),
      'other-check.js': check('shelf', './unknown.js'),
    }),
  );
  assert.deepEqual(
    found.map(({ path, locks }) => [path, locks.map(({ by }) => by)]),
    [
      ['blind.js', ['SET']],
      ['check.js', ['GET and SET']],
    ],
  );
});

test('a value is followed through eight files, and no further', async () => {
  const chain = (length: number) => {
    const links = Array.from({ length: length - 1 }, (_, i) => [
      `${length}/${i + 1}.js`,
      `export { kv } from './${i + 2}.js';`,
    ]);
    return {
      [`${length}/lock.js`]: `import { kv } from './1.js';\n${LOCK}`,
      ...Object.fromEntries(links),
      [`${length}/${length}.js`]: `${CLIENT}export const kv = made;`,
    };
  };
  const lengths = [1, 2, 7, 8, 9, 10];
  const files = Object.assign({}, ...lengths.map(chain));
  const { changes } = await reportOf(folderOf(files));
  const followed = lengths.filter((length) => changes.includes(`${length}/lock.js`));
  assert.deepEqual(followed, [1, 2, 7, 8]);
});

test('the manager is made behind the last import, and behind a require', async () => {
  const manager = "const locks = connectLazily(kv, { prefix: '' });";
  const log = 'log.info(1);\n';
  const [taken, files] = EXPORTS['a name'] ?? assert.fail();
  const [required, modules] = REQUIRES['the module'] ?? assert.fail();
  for (const [name, first, last, lock, others] of [
    ['job.mjs', taken, "import { log } from './log.js';", LOCK, files],
    ['job.cjs', "const log = require('./log');", required, LOCK_CJS, modules],
  ] as const) {
    const folder = folderOf({ ...others, [name]: `${first}\n${last}\n${log}${lock}` });
    await reportOf(folder, '--write');
    const written = read(folder, name).split('\n');
    assert.ok(written.indexOf(manager) > written.indexOf(last), written.join('\n'));
    assert.ok(written.indexOf(manager) < written.indexOf(log.trim()), written.join('\n'));
  }
});
