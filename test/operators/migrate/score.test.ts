/** `holdfast migrate`: how much each sign of a lock counts. Each row has just enough of them, or just too few. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { folderOf, reportOf } from './support.js';

/** The signs of a lock in code that takes a key; without any it has none. */
interface Signs {
  readonly key?: string;
  readonly value?: string;
  readonly result?: string;
  readonly name?: string;
  readonly comment?: string;
  readonly of?: string;
  readonly client?: string;
  readonly file?: string;
  readonly release?: 'here' | 'finally' | 'catch' | 'elsewhere' | 'freeing' | 'compared';
}

const COMPARED = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end";

function codeOf(signs: Signs): string {
  const { key = 'id', value = "'1'", result = 'r', name = 'nightly' } = signs;
  const { comment = '', of, client = 'redis', release = 'none' } = signs;
  const free = `await redis.del(${key});`;
  const compared = `await redis.eval("${COMPARED}", 1, ${key}, ${value});`;
  const work = `if (!${result}) return;`;
  const rest = {
    none: `${work} await run(id);`,
    here: `${work} await run(id); ${free}`,
    compared: `${work} await run(id); ${compared}`,
    finally: `${work} try { await run(id); } finally { ${free} }`,
    catch: `${work} try { await run(id); } catch { ${free} }`,
    elsewhere: `${work} await run(id);`,
    freeing: `${work} await run(id);`,
  }[release];
  const others: Partial<Record<string, string>> = {
    elsewhere: `end(id) { ${free} }`,
    freeing: `release(id) { ${free} }`,
  };
  const take = `const ${result} = await ${client}.set(${key}, ${value}, 'NX', 'EX', 9);`;
  const parts = [`${name}(id) { ${comment}\n  ${take} ${rest} }`, others[release] ?? ''];
  const written = parts.filter((part) => part !== '');
  if (of === undefined) return written.map((part) => `async function ${part}\n`).join('');
  return `class ${of} { ${written.map((part) => `async ${part}`).join('\n')} }\n`;
}

const ENOUGH: readonly Signs[] = [
  { release: 'finally' },
  { release: 'here', value: 'token' },
  { release: 'catch', name: 'claimIt', value: 'token' },
  { release: 'elsewhere', name: 'claimIt' },
  { release: 'elsewhere', result: 'claimed', value: 'token' },
  { release: 'elsewhere', comment: '// one lock', value: 'token' },
  { release: 'elsewhere', value: 'lockToken' },
  { release: 'freeing' },
  { release: 'freeing', name: 'limit', value: 'lockToken' },
  { result: 'locked' },
  { name: 'lockIt' },
  { name: 'claimIt', value: 'token' },
  { file: 'lock.js', value: 'lockValue' },
  { file: 'rate.js', release: 'finally', value: 'lockValue' },
  { file: 'rate.js', name: 'lockIt' },
  { client: 'lockClient', value: 'lockValue' },
  { of: 'Locks', value: 'token' },
  { of: 'Cache', release: 'finally', value: 'lockValue' },
  { of: 'Cache', name: 'lockIt' },
  { name: 'lockLimit', release: 'elsewhere', comment: '// one lock' },
  { name: 'lockLimit', value: 'lockToken' },
  { key: 'rateKey', release: 'finally', name: 'lockIt', value: 'lockToken' },
  { key: 'rateKey', release: 'compared', name: 'lockIt' },
  { key: 'lockKey' },
  { key: 'lockKey', name: 'limit', value: 'lockValue' },
  { key: 'lockRate', value: 'lockToken' },
  { key: "'lock:rate:' + id", value: 'token' },
];

const TOO_FEW: readonly Signs[] = [
  { release: 'here' },
  { release: 'catch', value: 'token' },
  { release: 'catch', name: 'claimIt' },
  { release: 'elsewhere', value: 'lockValue' },
  { release: 'elsewhere', result: 'claimed' },
  { release: 'elsewhere', comment: '// one lock' },
  { release: 'freeing', name: 'limit', value: 'lockValue' },
  { value: 'token' },
  { value: 'lockToken' },
  { result: 'locked', name: 'limit' },
  { name: 'claimIt' },
  { file: 'lock.js', value: 'token' },
  { file: 'rate.js', release: 'finally', value: 'token' },
  { client: 'lockClient', value: 'token' },
  { of: 'Locks' },
  { of: 'Cache', release: 'finally', value: 'token' },
  { name: 'limitLocks' },
  { name: 'lockLimit', value: 'lockValue' },
  { key: 'rateKey', release: 'finally', name: 'lockIt', value: 'lockValue' },
  { key: 'rateKey', release: 'compared', name: 'claimIt' },
  { key: 'lockKey', name: 'limit', value: 'token' },
  { key: 'lockRate', value: 'lockValue' },
  { key: "'lock:rate:' + id" },
];

test('code with just enough signs is a lock, and code with one less is not', async () => {
  const rows = [...ENOUGH, ...TOO_FEW];
  const files = rows.map((signs, i) => [`${i}/${signs.file ?? 'x.js'}`, codeOf(signs)]);
  const { found } = await reportOf(folderOf(Object.fromEntries(files)));
  const places = new Set(found.map(({ path }) => Number(path.split('/')[0])));
  for (const [i, signs] of rows.entries()) {
    assert.equal(places.has(i), i < ENOUGH.length, JSON.stringify(signs));
  }
});
