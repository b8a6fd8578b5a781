/** The example of an inventory: several processes of it, on a Redis and a PostgreSQL. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { Pool } from 'pg';
import { ROOT } from '../../support/child.js';
import { Postgres } from '../../support/postgres.js';
import { RedisServer } from '../../support/server.js';

const FOLDER = join(ROOT, 'examples', 'inventory');

let server: RedisServer;
let postgres: Postgres;

before(async () => {
  postgres = await Postgres.start();
  server = await RedisServer.start();
});

after(async () => {
  await Promise.all([server?.stop(), postgres?.stop()]);
});

/** Starts a program of the example. */
function start(file: string, env: NodeJS.ProcessEnv = {}): ChildProcess {
  const where = { REDIS_URL: server.url, DATABASE_URL: postgres.url };
  const child = spawn(process.execPath, [join(FOLDER, file)], {
    env: { ...process.env, ...where, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // Not SIGKILL: it ends what it has started itself.
  process.once('exit', () => child.kill('SIGTERM'));
  return child;
}

async function linesOf(child: ChildProcess): Promise<string[]> {
  const lines: string[] = [];
  assert.ok(child.stdout !== null);
  for await (const line of createInterface(child.stdout)) lines.push(line);
  return lines;
}

async function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null) return child.exitCode;
  return new Promise((resolve) => child.once('close', resolve));
}

test('the late write of a paused holder is refused by its fence, and accepted without the check', async () => {
  const child = start('paused-holder.mjs');
  const [lines, code] = await Promise.all([linesOf(child), ended(child)]);
  const scene = (checked: string, fate: string, verdict: string) => [
    `Fences checked: ${checked}`,
    '  instance A  has read the stock, asks for the price, and is stopped',
    '  instance B  sells one: HTTP 200, 4 left',
    '  instance B  sells one: HTTP 200, 3 left',
    '  instance B  sells one: HTTP 200, 2 left',
    `  instance A  goes on, and its late write is ${fate}`,
    `  the stock  says ${verdict}`,
  ];
  assert.deepEqual(lines, [
    ...scene('no', 'accepted: HTTP 200', '4 left of 5, and 4 were sold: wrong by 3'),
    ...scene('yes', 'refused: HTTP 409', '2 left of 5, and 3 were sold: exact'),
  ]);
  assert.equal(code, 0);
  const readme = readFileSync(join(FOLDER, 'README.md'), 'utf8');
  assert.ok(readme.includes(`\n${lines.join('\n')}\n`), 'its README shows what it says');
});

test('two instances sell five items to five of twenty buyers', async () => {
  const db = new Pool({ connectionString: postgres.url });
  const instances: ChildProcess[] = [];
  let codes: unknown;
  try {
    await db.query(readFileSync(join(FOLDER, 'schema.sql'), 'utf8'));
    await db.query('INSERT INTO stock (item, n) VALUES (42, 5)');
    instances.push(start('service.mjs', { PORT: '0' }), start('service.mjs', { PORT: '0' }));
    const urls = await Promise.all(instances.map(listening));

    const statuses = await Promise.all(Array.from({ length: 20 }, (_, i) => buy(urls[i % 2])));
    assert.deepEqual(
      [200, 410].map((wanted) => statuses.filter((status) => status === wanted).length),
      [5, 15],
    );
    const look = await fetch(`${urls[0]}/stock?item=42`);
    assert.deepEqual(await look.json(), { left: 0, sold: 5 });
    const { rows } = await db.query('SELECT DISTINCT fence FROM sales');
    assert.equal(rows.length, 5, 'each sale under a hold of its own');
    assert.equal(await buy(urls[0], '7'), 404);
    assert.equal(await buy(urls[0], 'tea'), 404);
  } finally {
    await db.end();
    const gone = Promise.all(instances.map(ended));
    for (const instance of instances) instance.kill('SIGTERM');
    codes = await gone;
  }
  assert.deepEqual(codes, [0, 0], 'each ends by itself');
});

/** The URL at which an instance of the service says that it listens. */
async function listening(child: ChildProcess): Promise<string> {
  const url = await new Promise((resolve) => child.stdout?.once('data', resolve));
  return String(url).trim();
}

async function buy(url = '', item = '42'): Promise<number> {
  return (await fetch(`${url}/buy?item=${item}`, { method: 'POST' })).status;
}
