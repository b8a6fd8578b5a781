/** `holdfast migrate --write` on locks that one function takes and another one frees: in a module, and in classes. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { folderOf, migrates, read, reportOf, runBeside } from './support.js';

const RELEASE =
  "const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`;\n";

const [MODULE, NEW_MODULE] = [
  `import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL, { keyPrefix: 'shop:' });
${RELEASE}
// One at a time.
export async function lock(name) {
  const token = randomUUID();
  const reply = await redis.set(\`lock:\${name}\`, token, 'PX', 30_000, 'NX');
  return reply === 'OK' ? token : null;
}

export async function unlock(name, token) {
  await redis.eval(RELEASE, 1, \`lock:\${name}\`, token); // only ours
}
`,
  `import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { connectLazily } from 'holdfast';

const redis = new Redis(process.env.REDIS_URL, { keyPrefix: 'shop:' });
const locks = connectLazily(redis, { prefix: '' });

// One at a time.
export async function lock(name) {
  const token = randomUUID();
  const reply = await locks.tryAcquire(\`lock:\${name}\`, { owner: token, ttl: 30_000, renew: false });
  return reply !== null ? token : null;
}

export async function unlock(name, token) {
  if (token) await locks.release(\`lock:\${name}\`, { owner: token }); // only ours
}
`,
];

const [SERVICE, NEW_SERVICE] = [
  `import { Redis } from 'ioredis'
import { v4 as uuidv4 } from 'uuid'

export class LockService {
  constructor(private readonly redis: Redis) {}

  async lock(key: string, seconds: number): Promise<string | null> {
    const token = uuidv4()
    for (let i = 0; i < 3; i++) {
      const ok = await this.redis.set(key, token, 'EX', seconds, 'NX')
      if (ok) return token
      await sleep(100)
    }
    return null
  }

  async unlock(key: string, token: string): Promise<boolean> {
    const script = \`
      if redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("del", KEYS[1])
      end
      return 0\`
    const result = await this.redis.eval(script, 1, key, token)
    return result === 1
  }
}
`,
  `import { Redis } from 'ioredis'
import { v4 as uuidv4 } from 'uuid'
import { connectLazily, type LockManager } from 'holdfast'

export class LockService {
  private readonly locks: LockManager

  constructor(private readonly redis: Redis) {
    this.locks = connectLazily(this.redis, { prefix: '' })
  }

  async lock(key: string, seconds: number): Promise<string | null> {
    const token = uuidv4()
    for (let i = 0; i < 3; i++) {
      const ok = await this.locks.tryAcquire(key, { owner: token, ttl: seconds * 1000, renew: false })
      if (ok) return token
      await sleep(100)
    }
    return null
  }

  async unlock(key: string, token: string): Promise<boolean> {
    const result = await this.locks.release(key, { owner: token })
    return result
  }
}
`,
];

const [OWN, NEW_OWN] = [
  `const { createClient } = require('redis');
const { randomBytes } = require('node:crypto');

class Locks {
  constructor(url) {
    this.client = createClient({ url });
    this.ttl = 5000;
  }
  async acquire(key) {
    const token = randomBytes(8).toString('hex');
    if ((await this.client.set(key, token, { NX: true, PX: this.ttl })) !== 'OK') throw new Error('held');
    return token;
  }
  async free(key, token) {
    await this.client.eval(
      "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end",
      { keys: [key], arguments: [token] },
    );
  }
  release(key, token) {
    return this.free(key, token);
  }
}
`,
  `const { connectLazily } = require('holdfast');
const { createClient } = require('redis');
const { randomBytes } = require('node:crypto');

class Locks {
  constructor(url) {
    this.client = createClient({ url });
    this.locks = connectLazily(this.client, { prefix: '' });
    this.ttl = 5000;
  }
  async acquire(key) {
    const token = randomBytes(8).toString('hex');
    if ((await this.locks.tryAcquire(key, { owner: token, ttl: this.ttl, renew: false })) === null) throw new Error('held');
    return token;
  }
  async free(key, token) {
    if (token) await this.locks.release(key, { owner: token });
  }
  release(key, token) {
    return this.free(key, token);
  }
}
`,
];

test('a release that asks for its token is asked for it once', async () => {
  const guarded = MODULE.replace('  await redis.eval', '  if (token) await redis.eval');
  const folder = folderOf({ 'a.mjs': guarded });
  await migrates(folder, '--write');
  assert.equal(read(folder, 'a.mjs'), NEW_MODULE);
});

test('functions and classes that take and free a lock keep their shape, and their line ends', async () => {
  const files = { 'a.mjs': MODULE, 'b.ts': SERVICE, 'c.cjs': OWN };
  const folder = folderOf({ ...files, 'crlf.mjs': MODULE.replaceAll('\n', '\r\n') });
  await migrates(folder, '--write');
  assert.equal(read(folder, 'a.mjs'), NEW_MODULE);
  assert.equal(read(folder, 'b.ts'), NEW_SERVICE);
  assert.equal(read(folder, 'c.cjs'), NEW_OWN);
  assert.equal(read(folder, 'crlf.mjs'), NEW_MODULE.replaceAll('\n', '\r\n'));
  assert.deepEqual((await reportOf(folder)).found, []);
});

test('a constructor keeps what it does: the manager is made ahead of it, or after super', async () => {
  const made = "this.locks = connectLazily(this.redis, { prefix: '' })";
  const written = async (head: string, body: string) => {
    const service = SERVICE.replace('class LockService', `class LockService${head}`);
    const folder = folderOf({ 'b.ts': service.replace(') {}', `) {${body}}`) });
    await migrates(folder, '--write');
    return read(folder, 'b.ts');
  };
  const note = "console.log('locks')";
  assert.ok((await written('', `\n    ${note}\n  `)).includes(`{\n    ${made}\n    ${note}\n  }`));
  const below = await written(' extends Base', `\n    super()\n    ${note}\n  `);
  assert.ok(below.includes(`{\n    super()\n    ${made}\n    ${note}\n  }`));
});

test('a constructor that makes the client last makes the manager after it', async () => {
  const [client, ttl] = ['    this.client = createClient({ url });\n', '    this.ttl = 5000;\n'];
  const folder = folderOf({ 'c.cjs': OWN.replace(client + ttl, ttl + client) });
  await migrates(folder, '--write');
  assert.ok(read(folder, 'c.cjs').includes(`${ttl}${client}    this.locks = connectLazily(`));
});

test('another form stays, with the code to paste', async () => {
  const forms = {
    'never-freed.mjs': MODULE.slice(0, MODULE.indexOf('export async function unlock')),
    'by-script.mjs': MODULE.replace(
      "redis.set(`lock:${name}`, token, 'PX', 30_000, 'NX')",
      "redis.eval(`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`, 1, `lock:${name}`, token, 900)",
    ),
    'del-two.mjs': MODULE.replace(
      'redis.eval(RELEASE, 1, `lock:${name}`',
      'redis.del(`lock:${name}`',
    ),
    'other-key.mjs': MODULE.replace('RELEASE, 1, `lock:', 'RELEASE, 1, `mine:'),
    'asked.mjs': MODULE.replace(
      /await redis\.eval\((.*)\);/,
      'if (await redis.eval($1)) log(name);',
    ),
    'any-token.ts': SERVICE.replace(
      'unlock(key: string, token: string)',
      'unlock(key: string, token: any)',
    ),
    'maybe-token.ts': SERVICE.replace(
      'unlock(key: string, token: string)',
      'unlock(key: string, token?: string)',
    ),
    'same-owner.mjs': MODULE.replace('const token = randomUUID();', "const token = 'me';"),
    'owner-of-caller.mjs': MODULE.replace('lock(name) {', 'lock(name, token) {').replace(
      '  const token = randomUUID();\n',
      '',
    ),
    'owner-of-module.mjs': MODULE.replace('  const token = randomUUID();\n', '').replace(
      '// One',
      'const token = randomUUID();\n// One',
    ),
    'result.mjs': MODULE.replace("return reply === 'OK' ? token : null;", 'return reply;'),
    'del.mjs': MODULE.replace(/redis\.eval\(RELEASE, 1, (.*), token\)/, 'redis.del($1)'),
    'one-of-two.mjs': `${MODULE}export const drop = async (name, token) => String(await redis.eval(RELEASE, 1, \`lock:\${name}\`, token));\n`,
    'count.mjs': MODULE.replace('await redis.eval', 'return await redis.eval'),
    'extends.mjs': `${MODULE}export const extend = (name) => redis.pexpire(\`lock:\${name}\`, 30_000);\n`,
    'asks.mjs': `${MODULE}export const isHeld = (name) => redis.exists(\`lock:\${name}\`);\n`,
    'client.ts': SERVICE.replace("from 'ioredis'", "from './my-redis'"),
    'untyped.ts': SERVICE.replace('redis: Redis', 'redis: any'),
    'named.ts': SERVICE.replace('async lock(', 'locks = []\n  async lock('),
    'for-each-lock.ts': SERVICE.replace(
      'redis: Redis',
      'redis: Redis, private readonly key: string',
    )
      .replaceAll('key: string, ', '')
      .replaceAll('(key,', '(this.key,')
      .replace('1, key,', '1, this.key,'),
    'endless.ts': SERVICE.replace(", 'EX', seconds, 'NX'", ", 'NX'"),
    'unasked.mjs': MODULE.replace('const reply = ', '').replace(/ {2}return reply.*\n/, ''),
    'other-client.mjs': MODULE.replace('await redis.eval', 'await other.eval').replace(
      'const redis',
      'const other = new Redis();\nconst redis',
    ),
    'late.cjs': OWN.replace('this.client = createClient({ url });', 'this.client = url.client;'),
  };
  const folder = folderOf(forms);
  const { changes, found } = await reportOf(folder, '--write');
  assert.deepEqual(changes, []);
  for (const [name, text] of Object.entries(forms)) {
    assert.equal(read(folder, name), text, name);
    assert.match(
      found.find(({ path }) => path === name)?.locks[0]?.code ?? '',
      /^.*tryAcquire/,
      name,
    );
  }
});

/** Questions in old code whether a release has freed the lock, each with the question that replaces it. */
const ASKED: readonly (readonly [was: string, becomes: string])[] = [
  ['result === 1', 'result'],
  ['result > 0', 'result'],
  ['result !== 0', 'result'],
  ['result !== 1', 'result === false'],
  ['result == 0', 'result === false'],
  ['!result', '!result'],
  ['Boolean(result)', 'Boolean(result)'],
  ["result ? 'freed' : 'lost'", "result ? 'freed' : 'lost'"],
  ['(result) === 1', '(result)'],
];

/** Uses of that result that are no such question: the code stays. */
const USED = [
  'result === 2',
  'result < 1',
  '1 === result',
  '-result',
  'String(result)',
  "key ? result : 'lost'",
  'log.Boolean(result)',
];

test('a question for the result of a release becomes the one that fits, and any other use keeps the code', async () => {
  const asks = (text: string) => SERVICE.replace('return result === 1', `return ${text}`);
  const files = [...ASKED.map(([was]) => was), ...USED].map((text, i) => [`${i}.ts`, asks(text)]);
  const folder = folderOf(Object.fromEntries(files));
  await migrates(folder, '--write');
  for (const [i, [was, becomes]] of ASKED.entries())
    assert.match(read(folder, `${i}.ts`).split('return ').at(-1) ?? '', lineOf(becomes), was);
  for (const [i, text] of USED.entries())
    assert.equal(read(folder, `${ASKED.length + i}.ts`), asks(text));
});

/** A line that has nothing else. */
function lineOf(text: string): RegExp {
  return new RegExp(`^${text.replace(/[()?]/g, '\\$&')}\n`);
}

/** Questions in old code whether SET has taken the lock, each with the question that replaces it; undefined if the code stays. */
const TAKEN: readonly (readonly [was: string, becomes: string | undefined])[] = [
  ["reply !== 'OK'", 'reply === null'],
  ['reply == "OK"', 'reply !== null'],
  ['reply === null', 'reply === null'],
  ['!reply', '!reply'],
  ["reply > 'OK'", undefined],
  ["'OK' === reply", undefined],
  ["reply === 'QUEUED'", undefined],
  ['+reply', undefined],
];

test('a question for the result of SET becomes one for the lock, or keeps the code', async () => {
  const asks = (text: string) => MODULE.replace("reply === 'OK'", text);
  const folder = folderOf(Object.fromEntries(TAKEN.map(([was], i) => [`${i}.mjs`, asks(was)])));
  await migrates(folder, '--write');
  for (const [i, [was, becomes]] of TAKEN.entries()) {
    const written = read(folder, `${i}.mjs`);
    if (becomes === undefined) assert.equal(written, asks(was));
    else assert.ok(written.includes(`return ${becomes} ? token : null;`), `${was}\n${written}`);
  }
});

test('a token that is no name is asked for before the lock is freed', async () => {
  const folder = folderOf({
    'a.mjs': MODULE.replace('unlock(name, token)', 'unlock(name, hold)').replace(
      /token\); \/\/ only/,
      'hold.token); // only',
    ),
  });
  await migrates(folder, '--write');
  const guarded = 'if (hold.token) await locks.release(`lock:${name}`, { owner: hold.token });';
  assert.ok(read(folder, 'a.mjs').includes(guarded), read(folder, 'a.mjs'));
});

test('a manager stands below the field of the client, whatever else the class has', async () => {
  const fields = [
    '  static {}',
    '  ttl = 5_000;',
    '  redis = new Redis(process.env.REDIS_URL);',
    '  name = 5;',
  ];
  const service = SERVICE.replace(
    '  constructor(private readonly redis: Redis) {}',
    fields.join('\n'),
  );
  const late = SERVICE.replace(/( {2}constructor.*\n)\n([\s\S]*)}\n$/, '  static {}\n$2\n$1}\n');
  const folder = folderOf({ 'a.ts': service, 'late.ts': late });
  await migrates(folder, '--write');
  const written = read(folder, 'a.ts');
  fields.splice(3, 0, "  locks = connectLazily(this.redis, { prefix: '' })");
  assert.ok(written.includes(`${fields.join('\n')}\n`), written);
  assert.match(written, /^import { connectLazily } from 'holdfast'/m);
  const made = "this.locks = connectLazily(this.redis, { prefix: '' })";
  assert.ok(read(folder, 'late.ts').includes(`redis: Redis) {\n    ${made}\n  }\n}\n`));
});

test('a directive stays the first statement of its file', async () => {
  const folder = folderOf({ 'c.cjs': `'use strict';\n${OWN}` });
  await migrates(folder, '--write');
  assert.equal(read(folder, 'c.cjs'), `'use strict';\n${NEW_OWN}`);
});

test('the written functions exclude the old ones, and free only their own lock', async () => {
  const { written, stdout, stderr } = await runBeside(
    MODULE,
    `
    const is = (value) => value === null ? 'held' : typeof value;
    for (const [a, b] of [[old, now], [now, old], [now, now]]) {
      const token = await a.lock('x');
      console.log(is(token), is(await b.lock('x')));
      await b.unlock('x', 'of another');
      await b.unlock('x', null);
      console.log(is(await b.lock('x')));
      await a.unlock('x', token);
      await a.unlock('x', token);
    }
    process.exit(0);`,
  );
  assert.equal(written, NEW_MODULE);
  assert.equal(stdout, 'string held\nheld\n'.repeat(3), stderr);
});
