/** `holdfast migrate --write`: what changes, and what stays. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { blocksOf, folderOf, migrates, type Report, read, reportOf, runBeside } from './support.js';

const MANIFEST = `{
  "name": "shop",
  "files": ["dist", "src"],
  "dependencies": {
    "ioredis": "^5.0.0",
    "redlock": "^5.0.0-beta.2"
  },
  "devDependencies": { "@types/redlock": "^4.0.0", "jest": "^30.0.0" }
}
`;

/** What a report says of a file's only lock. */
function adviceOf({ found }: Report, name: string): string | undefined {
  return found.find(({ path }) => path === name)?.locks[0]?.advice;
}

test('imports, requires and mocks of a package move to its drop-in, and package.json follows', async () => {
  const folder = folderOf({
    'package.json': MANIFEST,
    'src/a.ts':
      'import Redlock, { type Lock } from "redlock" // locks\nexport const r = new Redlock([c], { retryCount: 3 })\n',
    'src/b.cjs': "const Redlock = require('redlock').default;\r\nexports.r = new Redlock([c]);\r\n",
    'test/a.test.js': "jest.mock('redlock');\nimport('redlock');\n",
  });
  const { changes } = await reportOf(folder);
  assert.equal(read(folder, 'package.json'), MANIFEST, 'nothing changes without --write');
  assert.equal(changes.length, 4);
  await migrates(folder, '--write');
  assert.match(
    read(folder, 'src/a.ts'),
    /^import Redlock, { type Lock } from "holdfast\/redlock" \/\/ locks\n/,
  );
  assert.match(
    read(folder, 'src/b.cjs'),
    /^const Redlock = require\('holdfast\/redlock'\)\.default;\r\n/,
  );
  assert.equal(
    read(folder, 'test/a.test.js'),
    "jest.mock('holdfast/redlock');\nimport('holdfast/redlock');\n",
  );
  assert.equal(
    read(folder, 'package.json').replace(/\d+\.\d+\.\d+"\n {2}}/, 'V"\n  }'),
    MANIFEST.replace('"redlock": "^5.0.0-beta.2"', '"holdfast": "^V"').replace(
      '"@types/redlock": "^4.0.0", ',
      '',
    ),
  );
  assert.deepEqual((await reportOf(folder)).changes, []);
});

test('a package stays in all files if one of them uses what the drop-in does not have', async () => {
  const a = "import Redlock from 'redlock';\nexport const r = new Redlock([c]);\n";
  const b = "import Redlock, { Lock } from 'redlock';\nnew Redlock([c], { lockScript: mine });\n";
  const folder = folderOf({ 'package.json': MANIFEST, 'a.js': a, 'b.js': b });
  const report = await reportOf(folder, '--write');
  assert.deepEqual([report.changes, read(folder, 'a.js'), read(folder, 'b.js')], [[], a, b]);
  assert.match(adviceOf(report, 'b.js') ?? '', /takes no option lockScript/);
  assert.match(adviceOf(report, 'a.js') ?? '', /another file stays/);
});

test('the version in package.json decides the drop-in', async () => {
  const code = "const Redlock = require('redlock');\nmodule.exports = new Redlock([c]);\n";
  const four = folderOf({ 'package.json': '{"dependencies":{"redlock":"4.2.0"}}', 'a.js': code });
  const three = folderOf({ 'package.json': '{"dependencies":{"redlock":"^3.1.0"}}', 'a.js': code });
  const none = folderOf({ 'package.json': '{"dependencies":{"redlock":"latest"}}', 'a.js': code });
  await migrates(four, '--write');
  assert.match(read(four, 'a.js'), /require\('holdfast\/redlock4'\)/);
  assert.match(read(four, 'package.json'), /^{"dependencies":{"holdfast": "\^\d/);
  assert.match(
    adviceOf(await reportOf(three, '--write'), 'a.js') ?? '',
    /no drop-in for redlock 3/,
  );
  assert.match(
    adviceOf(await reportOf(none, '--write'), 'a.js') ?? '',
    /does not tell the version/,
  );
});

test('a Semaphore stays, since old instances must stop before it moves', async () => {
  const a =
    "import { Semaphore } from 'redis-semaphore';\nexport const s = new Semaphore(c, 'api', 5);\n";
  const folder = folderOf({
    'package.json': '{"dependencies":{"redis-semaphore":"^5.0.0"}}',
    'a.js': a,
  });
  const report = await reportOf(folder, '--write');
  assert.deepEqual([report.changes, read(folder, 'a.js')], [[], a]);
  assert.match(adviceOf(report, 'a.js') ?? '', /stop all old instances first/);
});

test('package.json that has holdfast keeps its version, and gets no second', async () => {
  const before = { dependencies: { holdfast: '0.1.0', redlock: '^5.0.0-beta.2' } };
  const folder = folderOf({
    'package.json': JSON.stringify(before, null, 2),
    'a.js': "const Redlock = require('redlock').default;\nnew Redlock([a, b, c]);\n",
  });
  await migrates(folder, '--write');
  assert.match(read(folder, 'a.js'), /require\('holdfast\/redlock'\)/);
  assert.equal(
    read(folder, 'package.json'),
    JSON.stringify({ dependencies: { holdfast: '0.1.0' } }, null, 2),
  );
});

test('package.json keeps a package that files outside of the given paths may import', async () => {
  const folder = folderOf({
    'package.json': MANIFEST,
    'src/a.js': "import Redlock from 'redlock';\n",
  });
  await migrates(folder, 'src', '--write');
  assert.match(read(folder, 'src/a.js'), /holdfast\/redlock/);
  assert.equal(read(folder, 'package.json'), MANIFEST);
});

const [OLD, NEW] = [
  `import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL);
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end";

export async function withLock(key, fn) {
  const token = randomUUID();
  const taken = await redis.set(key, token, 'EX', 30, 'NX'); // one at a time
  if (!taken) {
    throw new Error('held');
  }
  try {
    /* the work */
    return await fn();
  } finally {
    await redis.eval(RELEASE, 1, key, token);
  }
}
`,
  `import { Redis } from 'ioredis';
import { connectLazily } from 'holdfast';

const redis = new Redis(process.env.REDIS_URL);
const locks = connectLazily(process.env.REDIS_URL, { prefix: '' });

export async function withLock(key, fn) {
  const lock = await locks.tryAcquire(key, { ttl: 30000 }); // one at a time
  if (lock === null) {
    throw new Error('held');
  }
  try {
    /* the work */
    return await fn();
  } finally {
    await lock.release();
  }
}
`,
];

test('a lock of the common form becomes tryAcquire, with the line ends of the file', async () => {
  const folder = folderOf({ 'a.mjs': OLD, 'crlf.mjs': OLD.replaceAll('\n', '\r\n') });
  await migrates(folder, '--write');
  assert.equal(read(folder, 'a.mjs'), NEW);
  assert.equal(read(folder, 'crlf.mjs'), NEW.replaceAll('\n', '\r\n'));
  assert.deepEqual(readdirSync(folder).sort(), ['a.mjs', 'crlf.mjs']);
  assert.deepEqual((await reportOf(folder)).found, []);
});

test('a name of the new code may be that of a property', async () => {
  const folder = folderOf({
    'a.mjs': OLD.replace('await fn()', 'await fn({ lock: key, locks: 1 })'),
  });
  await migrates(folder, '--write');
  assert.equal(
    read(folder, 'a.mjs'),
    NEW.replace('await fn()', 'await fn({ lock: key, locks: 1 })'),
  );
});

test('what the old code did with an error of the release stays', async () => {
  const free = '    await redis.eval(RELEASE, 1, key, token);';
  const caught = '    await redis.eval(RELEASE, 1, key, token).catch(() => undefined);';
  const tried = `    try {\n  ${free}\n    } catch (error) {\n      log(error);\n    }`;
  const folder = folderOf({
    'a.mjs': OLD.replace(free, caught),
    'b.mjs': OLD.replace(free, tried),
  });
  await migrates(folder, '--write');
  const now = '    await lock.release();';
  assert.equal(
    read(folder, 'a.mjs'),
    NEW.replace(now, '    await lock.release().catch(() => undefined);'),
  );
  assert.equal(read(folder, 'b.mjs'), NEW.replace(now, tried.replace(free, now)));
});

test('a client with more than a URL gives its keyPrefix, database and login to the manager', async () => {
  const prefixed = OLD.replace('REDIS_URL)', "REDIS_URL, { keyPrefix: 'shop:' })");
  const folder = folderOf({
    'a.mjs': prefixed,
    'b.mjs': prefixed.replace('const redis', 'export const redis'),
    'c.mjs': OLD.replace('process.env.REDIS_URL', "{ host: 'redis', db: 2 }"),
  });
  await migrates(folder, '--write');
  for (const name of ['a.mjs', 'b.mjs', 'c.mjs'])
    assert.match(
      read(folder, name),
      /^const locks = connectLazily\(redis, { prefix: '' }\);$/m,
      name,
    );
});

test('the value of the old lock stays where other code needs it, or stands on its line', async () => {
  const made = '  const token = randomUUID();\n';
  const kept = {
    'logged.mjs': [`${made}  log(token);\n`, `${made}  log(token);\n`],
    'two.mjs': ['  const token = randomUUID(),\n    began = 1;\n', 'const token = randomUUID(),'],
    'beside.mjs': [`  log(key);${made}`, '  log(key);  \n'],
    'of-module.mjs': ['', '\nconst token = randomUUID();\n'],
  } as const;
  const folder = folderOf(
    Object.fromEntries(
      Object.entries(kept).map(([name, [text]]) => [
        name,
        text === ''
          ? OLD.replace(made, '').replace('const RELEASE', `${made.trim()}\nconst RELEASE`)
          : OLD.replace(made, text),
      ]),
    ),
  );
  await migrates(folder, '--write');
  for (const [name, [, left]] of Object.entries(kept)) {
    const written = read(folder, name);
    assert.match(written, /await locks\.tryAcquire\(key, { ttl: 30000 }\)/, name);
    assert.ok(written.includes(left), written);
  }
});

test('of two functions each loses the value that only its old lock needed', async () => {
  const other = OLD.slice(OLD.indexOf('export async')).replace('withLock', 'withOther');
  const second = other.replaceAll('taken', 'got').replaceAll('key', 'place');
  const folder = folderOf({ 'a.mjs': OLD + second });
  await migrates(folder, '--write');
  const renamed = NEW.slice(NEW.indexOf('export async')).replace('withLock', 'withOther');
  assert.equal(read(folder, 'a.mjs'), NEW + renamed.replaceAll('key', 'place'));
});

test('a value that the caller gives stays, as does what the old code never used', async () => {
  const given = OLD.replace('  const token = randomUUID();\n', '').replace(
    '(key, fn)',
    '(key, token, fn)',
  );
  const text = given.replace('const RELEASE', "const UNUSED = 'kept';\nlet later;\nconst RELEASE");
  const folder = folderOf({ 'a.mjs': text });
  await migrates(folder, '--write');
  const written = read(folder, 'a.mjs');
  assert.match(
    written,
    /withLock\(key, token, fn\) {\n {2}const lock = await locks\.tryAcquire\(key,/,
  );
  assert.match(written, /^const UNUSED = 'kept';\nlet later;\n/m);
});

test('the old code by hand of docs/migration.md is rewritten', async () => {
  const page = readFileSync(join(ROOT, 'docs', 'migration.md'), 'utf8');
  const code = /^```js before\n([\s\S]*?)^```$/m.exec(page)?.[1] ?? '';
  const folder = folderOf({ 'a.mjs': code });
  await migrates(folder, '--write');
  const written = read(folder, 'a.mjs');
  assert.match(written, /const lock = await locks\.tryAcquire\(key, { ttl: 10_000 }\)\n/);
  assert.doesNotMatch(written, /RELEASE|token|randomUUID/);
});

const FREE = 'await redis.eval(RELEASE, 1, key, token);';
/** The old code with another finally block. */
const FREE_WHERE = (text: string) => OLD.replace(FREE, text);

test('another form stays, with the code to paste', async () => {
  const forms = {
    'injected.mjs': OLD.replace('new Redis(process.env.REDIS_URL)', 'container.redis'),
    'unknown.mjs': OLD.replace("from 'ioredis'", "from './redis.mjs'"),
    'http.mjs': OLD.replace("from 'ioredis'", "from '@upstash/redis'"),
    'two-clients.mjs':
      OLD.replace(
        'const RELEASE',
        'const other = new Redis(process.env.OTHER_URL);\nconst RELEASE',
      ) +
      OLD.slice(OLD.indexOf('export async'))
        .replaceAll('redis.', 'other.')
        .replace('withLock', 'withOther'),
    'renewed.mjs': OLD.replace(
      'return await fn();',
      'await redis.pexpire(key, 9);\n    return await fn();',
    ),
    'told.mjs': OLD.replace('return await fn();', 'return await fn(await redis.get(key));'),
    'used.mjs': OLD.replace('return await fn()', 'return await fn(taken)'),
    'selects.mjs': OLD.replace('const RELEASE', 'await redis.select(2);\nconst RELEASE'),
    'other-key.mjs': OLD.replace('RELEASE, 1, key', 'RELEASE, 1, `mine:${key}`'),
    'no-utf8.mjs': OLD.replace('one at', 'one \ufffd at'),
    'named.mjs': OLD.replace('fn) {', 'fn, lock) {'),
    'continues.mjs': OLD.replace("throw new Error('held');", "console.log('held');"),
    'empty.mjs': OLD.replace("    throw new Error('held');\n", ''),
    'else.mjs': OLD.replace("held');\n  }", "held');\n  } else {\n    log(key);\n  }"),
    'taken.mjs': OLD.replace('!taken', "taken === 'OK'"),
    'maybe-freed.mjs': FREE_WHERE(`if (done) {\n      ${FREE}\n    }`),
    'maybe-tried.mjs': FREE_WHERE(
      `if (done) {\n      try {\n        ${FREE}\n      } catch {}\n    }`,
    ),
    'freed-then.mjs': FREE_WHERE(FREE.replace(');', ').then(log);')),
    'two-names.mjs': OLD.replace("'NX');", "'NX'),\n    began = 1;"),
    'used-as-a-value.mjs': OLD.replace('return await fn();', 'return await fn({ lock: lock });'),
    'used-as-a-key.mjs': OLD.replace('return await fn();', 'return await fn({ [lock]: 1 });'),
    'freed-at-last.mjs': FREE_WHERE(`try {\n      done();\n    } finally {\n      ${FREE}\n    }`),
  };
  const folder = folderOf(forms);
  const report = await reportOf(folder, '--write');
  assert.deepEqual(report.changes, []);
  for (const { path, locks } of report.found) {
    assert.match(locks[0]?.code ?? '', /^await locks\.request\(key, { ttl: 30000, wait: 0 }/, path);
    assert.equal(read(folder, path), forms[path as keyof typeof forms], path);
  }
  assert.equal(report.found.length, Object.keys(forms).length);
});

test('the corpus is written once, and can be parsed', async () => {
  const blocks = [...blocksOf('locks.md'), ...blocksOf('silent.md')];
  const folder = folderOf({
    'package.json': MANIFEST.replace('"redlock"', '"redis-semaphore": "^5.0.0",\n    "redlock"'),
    ...Object.fromEntries(blocks.map(({ name, text }) => [name, text])),
  });
  const { changes } = await reportOf(folder, '--write');
  assert.ok(changes.includes('x.js') && changes.includes('y.js'));
  const { changes: again, unread } = await reportOf(folder, '--write');
  assert.deepEqual([again, unread], [[], []]);
});

test('the written lock excludes the old code, and is excluded by it', async () => {
  const { written, stdout, stderr } = await runBeside(
    OLD,
    `
    const turns = [[old, now], [now, old]];
    for (const [a, b] of turns) {
      console.log(await a.withLock('lock:a', () => b.withLock('lock:a', () => 'both').catch((error) => error.message)));
      console.log(await b.withLock('lock:a', () => 'free'));
    }
    process.exit(0);`,
  );
  assert.equal(written, NEW);
  assert.equal(stdout, 'held\nfree\nheld\nfree\n', stderr);
});

test('the code to paste fits the form of the lock', async () => {
  const folder = folderOf({
    'helper.js': "export const acquireLock = (key) => redis.set(key, id, 'PX', 500, 'NX');\n",
    'marker.js':
      "export async function tick() {\n  if (await redis.set('cron:lock', id, 'EX', 5, 'NX')) await run();\n}\n",
    'loop.js':
      "export async function f() {\n  while (!(await redis.set('a:lock', id, 'EX', 5, 'NX'))) await sleep(5);\n  try { await run(); } finally { await redis.eval(RELEASE, 1, 'a:lock', id); }\n}\nconst RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end`;\n",
  });
  const { found } = await reportOf(folder);
  const codes = found.map(({ locks }) => locks[0]?.code ?? '');
  assert.match(
    codes[0] ?? '',
    /^const lock = await locks\.tryAcquire\(key, { ttl: 500 }\) … await lock\?\.release\(\)$/,
  );
  assert.match(codes[1] ?? '', /^await locks\.request\('a:lock', { ttl: 5000/);
  assert.match(codes[2] ?? '', /ttl: 5000, renew: false, leaveToExpire: true/);
});

/** Ways to take a lock with an expiry, and what it is in ms. */
const EXPIRIES: readonly (readonly [code: string, ttl: string])[] = [
  ["await redis.set('lock', id, 'PX', 60_000, 'NX')", '60_000'],
  ["await redis.set('lock', id, 'PX', '60000', 'NX')", '60000'],
  ["await redis.set('lock', id, 'NX', 'EX', 60)", '60000'],
  [
    "await redis.set('lock', id, { NX: true, EX: config.lock.seconds })",
    'config.lock.seconds * 1000',
  ],
  ["await redis.set('lock', id, 'EX', String(TTL), 'NX')", 'TTL * 1000'],
  ["await redis.set('lock', id, 'EX', `${TTL}`, 'NX')", 'TTL * 1000'],
  ["await redis.set('lock', id, 'EX', TTL.toString(), 'NX')", 'TTL * 1000'],
  ["await redis.set('lock', id, 'EX', `${TTL}0`, 'NX')", '(`${TTL}0`) * 1000'],
  ["await redis.set('lock', id, 'EX', `${TTL}${id}`, 'NX')", '(`${TTL}${id}`) * 1000'],
  ["await redis.set('lock', id, 'EX', parse(TTL), 'NX')", 'parse(TTL) * 1000'],
  ["await redis.set('lock', id, 'EX', TTL.toFixed(), 'NX')", 'TTL.toFixed() * 1000'],
  ["await redis.set('lock', id, 'EX', TTL.toString(8), 'NX')", 'TTL.toString(8) * 1000'],
  ["await redis.set('lock', id, 'EX', 5 * 60, 'NX')", '5 * 60 * 1000'],
  ["await redis.set('lock', id, 'EX', TTL + 1, 'NX')", '(TTL + 1) * 1000'],
  ["await redis.set('lock', id, 'EX', ms / 1000, 'NX')", 'ms'],
  ["await redis.set('lock', id, 'EX', 0.5, 'NX')", '500'],
  ["await redis.set('lock', id, 'PXAT', Date.now() + 60_000, 'NX')", '60_000'],
  ["await redis.set('lock', id, 'EXAT', Math.floor(Date.now() / 1000) + 60, 'NX')", '60000'],
  ["await redis.set('lock', id, 'PXAT', 60_000 + Date.now(), 'NX')", '60_000'],
  ["await redis.set('lock', id, 'PXAT', Date.now() - end, 'NX')", 'Date.now() - end - Date.now()'],
  ["await redis.set('lock', id, 'PXAT', end, 'NX')", 'end - Date.now()'],
  ["await redis.set('lock', id, { NX: true, EXAT: end })", 'end * 1000 - Date.now()'],
  [
    "await redis.set('lock', id, { condition: 'NX', expiration: { type: 'EX', value: 60 } })",
    '60000',
  ],
  [
    "await redis.set('lock', id, { condition: 'NX', expiration: { type: 'PXAT', value: end } })",
    'end - Date.now()',
  ],
  [
    "await glide.set('lock', id, { conditionalSet: 'onlyIfDoesNotExist', expiry: { type: TimeUnit.Seconds, count: 60 } })",
    '60000',
  ],
  [
    "await glide.set('lock', id, { conditionalSet: 'onlyIfDoesNotExist', expiry: { type: TimeUnit.UnixMilliseconds, count: end } })",
    'end - Date.now()',
  ],
  ["(await redis.setnx('lock', id)) && (await redis.expire('lock', 60))", '60000'],
  ["(await redis.setnx('lock', id)) && (await redis.pexpire('lock', TTL))", 'TTL'],
  [
    "(await redis.setnx('lock', id)) && (await redis.expireat('lock', end))",
    'end * 1000 - Date.now()',
  ],
  ["(await redis.setnx('lock', id)) && (await redis.pexpireat('lock', end))", 'end - Date.now()'],
  ["!(await redis.get('lock')) && (await redis.setex('lock', 60, id))", '60000'],
  ["!(await redis.get('lock')) && (await redis.psetex('lock', TTL, id))", 'TTL'],
  ["await redis.multi().setnx('lock', id).expire('lock', 60).exec()", '60000'],
  [
    "await redis.setnx('lock', Date.now() + TTL + 1), (await redis.get('lock')) < Date.now()",
    'TTL',
  ],
  [
    "await redis.eval(\"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])\", 1, 'lock', id, TTL)",
    'TTL',
  ],
  [
    "await redis.eval(\"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', 60)\", 1, 'lock', id)",
    '60000',
  ],
  [
    "await redis.eval(\"local ttl = tonumber(ARGV[2]) if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return redis.call('expire', KEYS[1], ttl) end\", { keys: ['lock'], arguments: [id, `${TTL}`] })",
    'TTL * 1000',
  ],
  ["await redis.setNX('lock', id, 60)", '…'],
  ["(await redis.setnx('lock', id)) && (await redis.setex('lock', 60, id))", '60000'],
  ["(await cache.setnx('lock', id)) && (await cache.setex('lock', id, 60))", '…'],
  [
    "await redis.set('lock', id, { nx: true, expiration: new Date(Date.now() + ms * 1000) })",
    'ms * 1000',
  ],
  [
    "(await redis.setnx('lock', id)) && (await redis.expireAt('lock', new Date(end)))",
    'end - Date.now()',
  ],
];

test('the code to paste has the expiry of the old code, in ms', async () => {
  const folder = folderOf(
    Object.fromEntries(
      EXPIRIES.map(([code], i) => [
        `${i}.js`,
        `export async function acquireLock(id, ms, end) {\n  if (${code}) return true;\n}\nexport const releaseLock = () => redis.del('lock');\n`,
      ]),
    ),
  );
  const { found } = await reportOf(folder);
  const codes = new Map(found.map(({ path, locks }) => [path, locks[0]?.code]));
  for (const [i, [code, ttl]] of EXPIRIES.entries())
    assert.equal(
      codes.get(`${i}.js`),
      `const lock = await locks.tryAcquire('lock', { ttl: ${ttl} }) … await lock?.release()`,
      code,
    );
});

test('the code to paste names no expiry if the old code has none', async () => {
  const folder = folderOf({
    'a.js':
      "export const acquireLock = () => redis.setnx('lock', id);\nexport const releaseLock = () => redis.del('lock');\n",
  });
  const { found } = await reportOf(folder);
  assert.equal(
    found[0]?.locks[0]?.code,
    "const lock = await locks.tryAcquire('lock') … await lock?.release()",
  );
});

test('a manager gets the URL of a client that only takes locks, and otherwise the client', async () => {
  const code = (options: string) => `import { createClient } from 'redis';
import { randomUUID } from 'node:crypto';

const client = createClient(${options});

export async function nightly() {
  const token = randomUUID();
  if ((await client.set('lock:nightly', token, { NX: true, PX: 30_000 })) !== 'OK') return;
  try {
    await work();
  } finally {
    await client.eval(
      "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end",
      { keys: ['lock:nightly'], arguments: [token] },
    );
  }
}
`;
  const given = {
    '{ url: process.env.REDIS_URL }': 'process.env.REDIS_URL',
    '{ socket: process.env.REDIS_URL }': 'client',
    '{ url: process.env.REDIS_URL, database: 1 }': 'client',
  };
  const names = Object.keys(given).map((options, i) => [`${i}.mjs`, code(options)]);
  const folder = folderOf(Object.fromEntries(names));
  await migrates(folder, '--write');
  for (const [i, target] of Object.values(given).entries())
    assert.ok(
      read(folder, `${i}.mjs`).includes(`connectLazily(${target}, { prefix: '' })`),
      target,
    );
});
