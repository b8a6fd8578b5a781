/** docs/migration.md: all its code runs, and each section's new code and old code, of here, exclude each other. */

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

/** A block of code: what it belongs to, and what its fence says of it. */
interface Block {
  readonly section: string;
  readonly kind: 'after' | 'before';
  /** `apart`: the two do not know each other. */
  readonly place: string;
  readonly code: string;
}

/** What a block of most sections exports. */
interface Shop {
  sell(item: string, work: () => Promise<void>): Promise<boolean>;
  close(): Promise<unknown>;
}

interface Callers {
  call<T>(work: () => Promise<T>): Promise<T>;
  close(): Promise<unknown>;
}

/** Old packages by the names that they are installed by here. */
const PACKAGES: Readonly<Record<string, string>> = {
  'redlock 4': 'redlock4',
  'redlock 5': 'redlock5',
};
/** The packages whose code runs unchanged on an entry point of holdfast, by the sections that say so. */
const DROP_INS: Readonly<Record<string, readonly [string, string]>> = {
  'redlock 4': ['redlock', 'holdfast/redlock4'],
  'redlock 5': ['redlock', 'holdfast/redlock'],
  'redis-semaphore: Mutex': ['redis-semaphore', 'holdfast/redis-semaphore'],
};
/** The old code that services have, by its file, with the section of the page that speaks of it. */
const OLD: Readonly<Record<string, readonly [section: string, place?: string]>> = {
  'node-redis.mjs': ['By hand'],
  'redlock-5.mjs': ['redlock 5'],
  'redlock-5-quorum.mjs': ['redlock 5 on several servers'],
  'redlock-4.cjs': ['redlock 4'],
  'redis-semaphore-mutex.mjs': ['redis-semaphore: Mutex'],
  'redis-semaphore-semaphore.mjs': ['redis-semaphore: Semaphore', 'apart'],
  'redlock-universal.mjs': ['redlock-universal'],
};
const OLD_FOLDER = join(ROOT, 'test', 'docs', 'old-code');
const FOLDER = join(ROOT, 'build', 'migration');

let servers: RedisServer[];

before(async () => {
  removeFolder(FOLDER);
  mkdirSync(FOLDER, { recursive: true });
  servers = await RedisServer.startSeveral(3);
  process.env['REDIS_URL'] = servers[0]?.url;
  process.env['REDIS_URLS'] = servers.map(({ url }) => url).join(' ');
});

after(() => Promise.all(servers.map((server) => server.stop())));

function blocks(): Block[] {
  const guide = readFileSync(join(ROOT, 'docs', 'migration.md'), 'utf8');
  const found: Block[] = [];
  let section = '';
  for (const [, heading, fence = '', code = ''] of guide.matchAll(
    /^(?:## ([^\n]*)|```([^\n]*)\n(.*?)^```)$/gms,
  )) {
    if (heading !== undefined) {
      section = heading;
      continue;
    }
    const [language, kind, place = ''] = fence.split(' ');
    // The tests of `holdfast migrate` run it on this code.
    if (language === 'sh') continue;
    assert.equal(language, 'js', section);
    assert.ok(kind === 'after' || kind === 'before', `${section}: ${fence}`);
    found.push({ section, kind, place, code });
  }
  for (const [file, [section, place = '']] of Object.entries(OLD)) {
    assert.ok(headings(guide).includes(section), section);
    const code = readFileSync(join(OLD_FOLDER, file), 'utf8');
    found.push({ section, kind: 'before', place, code });
  }
  return found;
}

const headings = (page: string) =>
  Array.from(page.matchAll(/^## ([^\n]*)$/gm), ([, heading = '']) => heading);

const ALL = blocks();
let files = 0;

/** Runs a block as a module of its own. */
async function load<T>({ section, code }: Block): Promise<T> {
  const old = PACKAGES[section.split(' ').slice(0, 2).join(' ')] ?? 'redlock';
  const text = code.replace(/(from |require\()'redlock'/, `$1'${old}'`);
  const file = join(FOLDER, `${files++}.${code.includes('require(') ? 'cjs' : 'mjs'}`);
  writeFileSync(file, text);
  const module = await import(pathToFileURL(file).href);
  return module.sell === undefined && module.default !== undefined ? module.default : module;
}

/** The old code of a section with only its import line changed. */
function dropIn(block: Block): Block {
  const [old, entry] = DROP_INS[block.section] ?? ['', ''];
  const code = ['from ', 'require('].reduce(
    (text, begin) => text.replace(`${begin}'${old}'`, `${begin}'${entry}'`),
    block.code,
  );
  assert.notEqual(code, block.code, block.section);
  return { ...block, kind: 'after', code };
}

/** Whether `work` was run: a refusal is `false`, or an error. */
async function sold(shop: Shop, item: string, work: () => Promise<void>): Promise<boolean> {
  let ran = false;
  const noted = async () => {
    ran = true;
    await work();
  };
  try {
    assert.equal(await shop.sell(item, noted), ran);
  } catch (error) {
    // What went wrong inside is no refusal.
    if (ran) throw error;
  }
  return ran;
}

/** While `holder` is in, `other` is not; afterwards it is. */
async function excludes(holder: Shop, other: Shop, item: string): Promise<void> {
  const told: string[] = [];
  let leave = () => {};
  const stay = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const first = sold(holder, item, async () => {
    told.push('in');
    await stay;
    told.push('out');
  });
  await until(() => told.length === 1, 'the first to be in');
  const second = sold(other, item, async () => void told.push('other'));
  await sleep(150);
  leave();
  assert.ok(await first);
  if (!(await second)) assert.ok(await sold(other, item, async () => void told.push('other')));
  assert.deepEqual(told, ['in', 'out', 'other']);
}

const TIMES = 10;

/** Tasks of all shops at once lose no update of a counter. */
async function contend(shops: readonly Shop[], item: string): Promise<void> {
  let count = 0;
  const task = async (shop: Shop) => {
    for (let done = 0; done < TIMES; ) {
      const increment = async () => {
        const read = count;
        await sleep(1);
        count = read + 1;
      };
      if (await sold(shop, item, increment)) done += 1;
      await sleep(Math.random() * 30);
    }
  };
  const tasks = [...shops, ...shops].map(task);
  await Promise.all(tasks);
  assert.equal(count, tasks.length * TIMES);
}

const SECTIONS = [...new Set(ALL.map(({ section }) => section))];

test('each section has code before and after, but where the import alone changes', () => {
  assert.ok(SECTIONS.length >= 7);
  for (const section of SECTIONS) {
    const kinds = new Set(ALL.filter((each) => each.section === section).map(({ kind }) => kind));
    assert.ok(kinds.has('before'), section);
    assert.ok(kinds.has('after') || section in DROP_INS, section);
  }
});

for (const section of SECTIONS) {
  const run = ALL.filter((block) => block.section === section && block.place !== 'apart');
  if (run.length === 0) continue;
  test(`${section}: old and new code exclude each other`, async () => {
    const old = run.filter(({ kind }) => kind === 'before' && section in DROP_INS);
    const all = [...run, ...old.map(dropIn)];
    const shops = await Promise.all(all.map((block) => load<Shop>(block)));
    for (const [i, holder] of shops.entries()) {
      for (const [k, other] of shops.entries()) {
        await excludes(holder, other, `${section}:${i}:${k}`);
      }
    }
    await contend(shops, `${section}:contended`);
    await Promise.all(shops.map((shop) => shop.close()));
  });
}

test('semaphores: each lets ten in, and no more', async () => {
  const apart = ALL.filter(({ place }) => place === 'apart');
  assert.equal(apart.length, 2);
  for (const block of apart) {
    const { call, close } = await load<Callers>(block);
    let inside = 0;
    let most = 0;
    const work = async () => {
      inside += 1;
      most = Math.max(most, inside);
      await until(() => most === 10, 'ten to be in');
      await sleep(5);
      inside -= 1;
    };
    await Promise.all(Array.from({ length: 25 }, () => call(work)));
    assert.equal(most, 10);
    await close();
  }
});
