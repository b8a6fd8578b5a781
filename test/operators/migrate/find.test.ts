/** `holdfast migrate`: the locks that it finds, what it says of them, and what it leaves alone. */

import assert from 'node:assert/strict';
import { constants } from 'node:buffer';
import { chmodSync, mkdirSync, readFileSync, symlinkSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { blocksOf, folderOf, migrates, migratesAs, type Report, reportOf } from './support.js';

test('each lock of the corpus is found once, with the rules that it breaks', async () => {
  const blocks = blocksOf('locks.md');
  const folder = folderOf(Object.fromEntries(blocks.map(({ name, text }) => [name, text])));
  const { found, unread } = await reportOf(folder);
  assert.deepEqual(unread, []);
  const rules = new Map(
    found.map(({ path, locks }) => {
      assert.equal(locks.length, 1, path);
      return [path, locks[0]?.findings.map(({ rule }) => rule)];
    }),
  );
  for (const { name, notes } of blocks.filter(({ name }) => !name.endsWith('.lua')))
    assert.deepEqual(rules.get(name)?.sort(), [...notes].sort(), name);
});

test('every rule has code of the corpus that breaks it, and a section of its page', async () => {
  const { stdout } = await migrates(folderOf({}), '--sarif');
  const rules = JSON.parse(stdout).runs[0].tool.driver.rules.map(({ id }: { id: string }) => id);
  const page = readFileSync(join(ROOT, 'docs', 'migrate-rules.md'), 'utf8');
  const sections = [...page.matchAll(/^## ([a-z-]+)$/gm)].map(([, name]) => name);
  const broken = new Set(blocksOf('locks.md').flatMap(({ notes }) => notes));
  assert.deepEqual([[...broken].sort(), sections.sort()], [rules.sort(), rules]);
});

test('code that only looks like a lock stays silent', async () => {
  const blocks = blocksOf('silent.md');
  const folder = folderOf(Object.fromEntries(blocks.map(({ name, text }) => [name, text])));
  const { files, found, unread } = await reportOf(folder);
  assert.deepEqual([files, found, unread], [blocks.length, [], []]);
});

/** Code after the start of a function that takes the lock by SETNX, and the ttl of the request that replaces it. */
const LATE_EXPIRIES: readonly (readonly [value: string, rest: string, ttl: string])[] = [
  ['me', "await redis.expire('lock:a', 30); }", '30000'],
  ['me', "await redis.set('lock:a', me, 'PX', 5000); }", '5000'],
  // The one of the same function counts.
  [
    'me',
    "await redis.expire('lock:a', 30); } const keep = () => redis.expire('lock:a', 60);",
    '30000',
  ],
  ['me', "} const keep = () => redis.expire('lock:a', 60);", '60000'],
  // A wrapper may take the value before the expiry.
  ['me', "await redis.setex('lock:a', me, 30); }", '…'],
  ['me', "await redis.setex('lock:a', 30, me); }", '30000'],
  ['Date.now() + 5000', "if (Date.now() > (await redis.get('lock:a'))) run(); }", '5000'],
  ['Date.now() + 5000', 'run(); }', '…'],
  [
    'Date.now() + 5000',
    "if (Date.now() > (await redis.get('lock:a'))) await redis.set('lock:a', 'done'); }",
    '5000',
  ],
];

test('the expiry that a later command or the value sets is that of the request in its place', async () => {
  const begin = (value: string) =>
    `async function f() { if (!(await redis.setnx('lock:a', ${value}))) return; await work(); `;
  const files = LATE_EXPIRIES.map(([value, rest], i) => [`${i}.js`, `${begin(value)}${rest}\n`]);
  // A command before the SETNX sets the expiry of something else.
  files.push(['9.js', `const put = () => redis.set('lock:a', 1, 'EX', 70); ${begin('me')} }\n`]);
  const { found } = await reportOf(folderOf(Object.fromEntries(files)));
  assert.deepEqual(
    found.map(({ locks }) => /ttl: (\S+),/.exec(locks[0]?.code ?? '')?.[1]),
    [...LATE_EXPIRIES.map(([, , ttl]) => ttl), '…'],
  );
});

test('the old code that the pages show is found, and the code of holdfast is not', async () => {
  const old = await reportOf(join(ROOT, 'test', 'docs', 'old-code'));
  const broken = old.found.map(({ path, locks }) => [
    path,
    locks.flatMap(({ findings }) => findings.map(({ rule }) => rule)),
  ]);
  assert.deepEqual(broken, [
    ['node-redis.mjs', ['no-renewal']],
    ['redis-semaphore-mutex.mjs', []],
    ['redis-semaphore-semaphore.mjs', []],
    ['redlock-4.cjs', ['superseded-package', 'redlock-on-one-server']],
    ['redlock-5-quorum.mjs', ['superseded-package']],
    ['redlock-5.mjs', ['superseded-package', 'redlock-on-one-server']],
    ['redlock-universal.mjs', []],
  ]);
  for (const page of [
    'README.md',
    'docs/migration.md',
    'docs/deciding.md',
    'docs/guide.md',
    'docs/fencing.md',
  ]) {
    const text = readFileSync(join(ROOT, page), 'utf8');
    const blocks = [...text.matchAll(/^```[jt]s(.*)\n([\s\S]*?)^```$/gm)];
    const folder = folderOf(
      Object.fromEntries(blocks.map(([, , code = ''], i) => [`${i}.mts`, code])),
    );
    const { found } = await reportOf(folder);
    const ours = blocks.flatMap(([, notes = ''], i) => (/before/.test(notes) ? [`${i}.mts`] : []));
    assert.deepEqual(
      found.map(({ path }) => path),
      ours,
      page,
    );
  }
});

/** The faults that README.md lists of `SET NX PX` by hand, with the rules about them. */
const README_FAULTS: readonly (readonly [fault: RegExp, rule: string])[] = [
  [/blocked event loop renews no lease/, 'renewal-on-event-loop'],
  [/paused past its lease writes late/, 'no-fence'],
  [/Waiters poll/, 'busy-polling'],
  [/`DEL` in `finally` deletes the next owner's lock/, 'release-without-compare'],
];

test('each fault that README.md lists is found in code that has it', async () => {
  const page = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const rows = page
    .split('| fault | holdfast |')[1]
    ?.split('\n\n')[0]
    ?.match(/^\| \w.*$|^\| `.*$/gm);
  assert.equal(rows?.length, README_FAULTS.length);
  for (const [i, [fault]] of README_FAULTS.entries()) assert.match(rows?.[i] ?? '', fault);
  const folder = folderOf({
    'a.js': `async function sell(item) {
  const key = 'lock:' + item;
  while (!(await redis.set(key, token, 'NX', 'PX', 10_000))) {}
  const timer = setInterval(() => redis.pexpire(key, 10_000), 3_000);
  try {
    await db.updateOne({ item }, { $inc: { left: -1 } });
  } finally {
    clearInterval(timer);
    await redis.del(key);
  }
}
`,
  });
  const { found } = await reportOf(folder);
  const rules = found[0]?.locks[0]?.findings.map(({ rule }) => rule) ?? [];
  for (const [fault, rule] of README_FAULTS) assert.ok(rules.includes(rule), `${fault} ${rules}`);
});

test('it reads what no .gitignore names, and no installed package', async () => {
  const lock = "export const lock = () => redis.set('job:lock', id, 'PX', 1000, 'NX');\n";
  const folder = folderOf({
    '.gitignore': 'dist/\n*.gen.js\n!keep.gen.js\n',
    'a.js': lock,
    'b.jsx': `${lock}export const view = <p>{1}</p>;\n`,
    'c.cts': lock.replace('id', 'id as string'),
    'keep.gen.js': lock,
    'lib/.gitignore': 'old.js\n',
    'lib/e.mjs': lock,
    'lib/old.js': lock,
    'dist/f.js': lock,
    'g.gen.js': lock,
    'h.d.ts': "declare const redis: any;\nredis.set('lock', 1, 'PX', 1, 'NX')",
    'node_modules/i/index.js': lock,
    'notes.md': lock,
    'broken.js': `${lock}}}`,
  });
  const { found, files, unread } = await reportOf(folder);
  const paths = found.map(({ path }) => path);
  assert.deepEqual(paths.sort(), ['a.js', 'b.jsx', 'c.cts', 'keep.gen.js', 'lib/e.mjs']);
  assert.deepEqual(
    [files, unread],
    [6, [{ path: 'broken.js', reason: 'no program that can be parsed' }]],
  );
  const named = await reportOf(folder, 'lib', 'node_modules/i/index.js');
  assert.deepEqual(
    named.found.map(({ path }) => path),
    ['lib/e.mjs', 'node_modules/i/index.js'],
  );
});

test('a .gitignore above the given folder counts in its repository, and a later rule overrules it', async () => {
  const lock = "export const lock = () => redis.set('job:lock', id, 'PX', 1000, 'NX');\n";
  const files = {
    '.gitignore': '*.gen.js\nold/\n',
    'src/.gitignore': '!kept.gen.js\n',
    'src/kept.gen.js': lock,
    'src/a.gen.js': lock,
    'src/old/a.js': lock,
    'src/deep/a.gen.js': lock,
    'src/deep/kept.gen.js': lock,
    'src/deep/a.js': lock,
  };
  const paths = async (more: Readonly<Record<string, string>>, from: string) =>
    (await reportOf(folderOf({ ...files, ...more }), from)).found.map(({ path }) => path);
  const repository = { '.git/HEAD': 'ref: refs/heads/main\n' };
  assert.deepEqual(await paths(repository, 'src/deep'), ['src/deep/a.js', 'src/deep/kept.gen.js']);
  const below = ['src/deep/a.js', 'src/deep/kept.gen.js', 'src/kept.gen.js'];
  assert.deepEqual(await paths(repository, 'src'), below);
  const all = ['src/deep/a.gen.js', 'src/deep/a.js', 'src/deep/kept.gen.js'];
  assert.deepEqual(await paths({}, 'src/deep'), all, 'no repository tells which files are above');
});

test('files are told in the order of their names', async () => {
  const lock = "if (await redis.set('lock', id, 'PX', 9, 'NX')) await run();\n";
  const names = ['b', 'a10', 'a/c', 'z', 'B', 'm/a', 'a1', 'y', 'c'].map((name) => `${name}.js`);
  const { found } = await reportOf(folderOf(Object.fromEntries(names.map((name) => [name, lock]))));
  const paths = ['B', 'a/c', 'a1', 'a10', 'b', 'c', 'm/a', 'y', 'z'].map((name) => `${name}.js`);
  assert.deepEqual(
    found.map(({ path }) => path),
    paths,
  );
});

const LOCK = "if (await redis.set('lock', id, 'PX', 9, 'NX')) await run();\n";

test('what the system does not let it read is told, and the run goes on', async () => {
  const folder = folderOf({
    'a.js': LOCK,
    'b/a.js': LOCK,
    'c.js': LOCK,
    'c-of-another.js': `import { LOCK } from './c.js';\n${LOCK.replace("'lock'", 'LOCK')}`,
    'd/e/a.js': LOCK,
    'f/a.js': LOCK,
    'package.json': '{}',
    'z.js': LOCK,
  });
  mkdirSync(join(folder, 'f', '.gitignore'));
  const closed = ['b', 'c.js', 'd/e'].map((name) => join(folder, name));
  for (const path of closed) chmodSync(path, 0);
  chmodSync(folder, 0o755);
  // The superuser may read everything.
  const user = process.getuid?.() === 0 ? { uid: 65_534 } : {};
  const { code, stdout, stderr } = await migratesAs(folder, ['--json'], user);
  for (const path of closed) chmodSync(path, 0o755);
  assert.equal(code, 0, stderr);
  const { found, unread } = JSON.parse(stdout) as Report;
  assert.deepEqual(
    found.map(({ path }) => path),
    ['a.js', 'c-of-another.js', 'f/a.js', 'z.js'],
  );
  assert.deepEqual(
    unread.map(({ path, reason }) => `${path} ${/^E[A-Z]+/.exec(reason)?.[0]}`),
    ['b EACCES', 'd/e EACCES', 'f/.gitignore EISDIR', 'c.js EACCES'],
  );
});

test('generated code that is too long is told', async () => {
  const folder = folderOf({ 'a.js': `${LOCK}// ${'x'.repeat(2_000_000)}\n`, 'b.js': LOCK });
  const { found, unread } = await reportOf(folder);
  assert.deepEqual([found.length, unread.map(({ path }) => path)], [1, ['a.js']]);
});

test('a file that is longer than any text is told, and the run goes on', async () => {
  const folder = folderOf({
    'a.js': '',
    'b.js': `import { LOCK } from './a.js';\n${LOCK.replace("'lock'", 'LOCK')}`,
  });
  // It takes no room on the disk.
  truncateSync(join(folder, 'a.js'), constants.MAX_STRING_LENGTH + 1);
  const { found, unread } = await reportOf(folder);
  assert.deepEqual([found.length, unread.map(({ path }) => path)], [1, ['a.js']]);
});

test('a link is followed only if it is named', async () => {
  const folder = folderOf({ 'src/a.js': LOCK });
  for (const [target, name] of [
    ['src', 'link'],
    ['..', 'src/up'],
    ['.', 'src/self'],
    ['nowhere.js', 'src/lost.js'],
  ])
    symlinkSync(target as string, join(folder, name as string));
  const paths = async (...args: string[]) =>
    (await reportOf(folder, ...args)).found.map(({ path }) => path);
  assert.deepEqual(await paths(), ['src/a.js']);
  assert.deepEqual(await paths('link'), ['link/a.js']);
});

test('code that nests deeper than the stack is no reason to stop', async () => {
  const deep = `redis.set('lock', ${"'a' + ".repeat(50_000)}'b', 'PX', 1, 'NX');\n`;
  const folder = folderOf({
    'a.js': deep,
    'b.js': "if (await redis.set('lock', id, 'PX', 9, 'NX')) await run();\n",
  });
  const { found } = await reportOf(folder);
  assert.equal(found.at(-1)?.path, 'b.js');
});
