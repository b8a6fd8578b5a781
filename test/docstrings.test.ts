/** The examples in the docstrings of the entry points beside the main one: they run, and every public item has one. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fenceTable } from 'holdfast/fence';
import { Pool } from 'pg';
import type { Block } from './docs/blocks.js';
import { runProgram } from './docs/programs.js';
import { ROOT } from './support/child.js';
import { Postgres } from './support/postgres.js';
import { RedisServer } from './support/server.js';

const FOLDERS = [
  'js/adapters/bullmq',
  'js/fence',
  'js/adapters/idempotency',
  'js/adapters/nest',
  'js/adapters/node-cron',
  'js/operators/page',
];

let server: RedisServer;
let postgres: Postgres;

before(async () => {
  server = await RedisServer.start();
  postgres = await Postgres.start();
  const pool = new Pool({ connectionString: postgres.url });
  await pool.query(fenceTable('postgres'));
  await pool.query('CREATE TABLE stock (item integer, n integer)');
  await pool.end();
});

after(async () => {
  await Promise.all([server?.stop(), postgres?.stop()]);
});

for (const file of FOLDERS.flatMap((folder) =>
  readdirSync(join(ROOT, folder)).map((name) => `${folder}/${name}`),
)) {
  const source = readFileSync(join(ROOT, file), 'utf8');
  for (const found of source.matchAll(
    /\/\*\*(?:(?!\*\/).)*\*\/\nexport (?:async )?(\w+) (\w+)/gs,
  )) {
    const [text, kind, name] = found;
    if (/@internal/.test(text)) continue;
    const title = `${file}: ${kind} ${name}`;
    test(`${title} has an example that runs`, async () => {
      const code = /@example\n \* ```ts\n(.*?) \* ```/s.exec(text)?.[1]?.replaceAll(/^ \* ?/gm, '');
      assert.ok(code !== undefined, `${title} has no example`);
      await run({ page: file, line: 0, language: 'ts', code });
    });
  }
}

function run(block: Block): Promise<void> {
  return runProgram(block, {
    env: { REDIS_URL: server.url, DATABASE_URL: postgres.url },
    instead: { 'redis://127.0.0.1:6379': server.url },
    stage: 'test/docs/stage.mjs',
  });
}
