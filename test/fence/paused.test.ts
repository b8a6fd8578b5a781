/**
 * A holder is stopped past its lease, another process takes its locks and writes, the first goes on: its late
 * write is refused by each kind of store, though it notices nothing itself.
 */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { after, before, test } from 'node:test';
import { checkFence } from 'holdfast/fence';
import { ROOT } from '../support/child.js';
import { nodeOf } from '../support/fetched.js';
import { betterSqliteModule } from './better-sqlite.js';
import { withPrisma } from './prisma.js';
import { Servers } from './servers.js';
import { BETTER_SQLITE_KINDS, KINDS, type Kind, TABLES } from './stores.js';

let servers: Servers;

before(async () => {
  servers = await Servers.start();
});

after(() => servers?.stop());

/** What a holder runs with. */
interface Programs {
  readonly node?: string;
  /** The module of its client of Prisma. */
  readonly prisma?: string;
  /** The module of better-sqlite3. */
  readonly betterSqlite?: string;
}

/** A process that holds locks. */
class Holder {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(
    kinds: readonly Kind[],
    { node = process.execPath, prisma = '', betterSqlite = '' }: Programs,
  ) {
    const file = join(ROOT, 'build', 'test', 'fence', 'holder.js');
    const what = JSON.stringify({
      redis: servers.redis.url,
      places: { ...servers.places, prisma, betterSqlite },
      kinds,
    });
    this.#child = spawn(node, [file, what], { stdio: ['pipe', 'pipe', 'inherit'] });
    const kill = () => this.#child.kill('SIGKILL');
    process.once('exit', kill);
    this.#child.once('exit', () => process.off('exit', kill));
    const lines = createInterface(this.#child.stdout as never) as Interface;
    this.#lines = lines[Symbol.asyncIterator]();
  }

  async says(): Promise<string> {
    return (await this.#lines.next()).value;
  }

  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  /** Writes to all stores. */
  async write(n: number): Promise<Record<string, string>> {
    this.#child.stdin?.write(`${n}\n`);
    return JSON.parse(await this.says());
  }

  end(): void {
    this.#child.stdin?.end();
  }
}

/** What became of the writes of a holder that was stopped, and of those of its successor. */
async function lateWrites(kinds: readonly Kind[], programs: Programs = {}) {
  const first = new Holder(kinds, programs);
  assert.equal(await first.says(), 'holds');
  first.pause();
  const second = new Holder(kinds, programs);
  // It waits until the leases of the first have ended.
  assert.equal(await second.says(), 'holds');
  const written = await second.write(2);
  second.end();
  first.resume();
  const late = await first.write(4);
  first.end();
  return { written, late };
}

test('every kind of store refuses the late write of a holder that was stopped', async (t) => {
  for (const kind of KINDS) {
    const row = `INSERT INTO stock (item, n) VALUES ('${kind}', 5)`;
    await servers.onPostgres(row);
    await servers.onMysql(row);
  }
  const { written, late } = await lateWrites(KINDS);
  for (const kind of KINDS) {
    await t.test(kind, async () => {
      assert.equal(written[kind], 'written');
      assert.equal(late[kind], 'ERR_LOCK_STALE_FENCE');
      assert.equal(await inStock(kind), 2);
    });
  }
});

test('node:sqlite refuses the late write of a holder that was stopped', async () => {
  const node = await nodeOf(24);
  const tables = [...TABLES('sqlite'), "INSERT INTO stock (item, n) VALUES ('node:sqlite', 5)"];
  await onSqlite(node, tables.join(';'));
  const { written, late } = await lateWrites(['node:sqlite'], { node });
  assert.deepEqual(written, { 'node:sqlite': 'written' });
  assert.deepEqual(late, { 'node:sqlite': 'ERR_LOCK_STALE_FENCE' });
  assert.equal(await onSqlite(node, ''), 2);
});

test('better-sqlite3 and Drizzle with it refuse the late write of a holder that was stopped', async () => {
  const betterSqlite = await betterSqliteModule();
  const { Database, drizzle } = require(betterSqlite);
  const database = new Database(`${servers.places.sqlite}-better`);
  try {
    for (const statement of TABLES('sqlite')) database.exec(statement);
    for (const kind of BETTER_SQLITE_KINDS) {
      database.exec(`INSERT INTO stock (item, n) VALUES ('${kind}', 5)`);
    }
    const { written, late } = await lateWrites(BETTER_SQLITE_KINDS, { betterSqlite });
    for (const kind of BETTER_SQLITE_KINDS) {
      const { n } = database.prepare(`SELECT n FROM stock WHERE item = '${kind}'`).get();
      assert.deepEqual(
        [written[kind], late[kind], n],
        ['written', 'ERR_LOCK_STALE_FENCE', 2],
        kind,
      );
    }
    for (const none of [database, drizzle(database)]) {
      const lock = { name: 'outside', fence: 1 };
      assert.throws(
        () => checkFence(none, lock),
        /must be checked in a transaction, and no transaction is open/,
      );
    }
  } finally {
    database.close();
  }
});

test('Prisma with PostgreSQL refuses the late write of a holder that was stopped', async () => {
  await servers.onPostgres("INSERT INTO stock (item, n) VALUES ('Prisma with PostgreSQL', 5)");
  await withPrisma('postgresql', async (prisma) => {
    await refusesLate('Prisma with PostgreSQL', prisma);
    assert.equal(await inStock('Prisma with PostgreSQL'), 2);
  });
});

test('Prisma with SQLite refuses the late write of a holder that was stopped', async () => {
  await withPrisma('sqlite', async (prisma) => {
    const { PrismaClient, PrismaLibSql } = require(prisma);
    const url = `file:${servers.places.sqlite}-prisma`;
    const db = new PrismaClient({ adapter: new PrismaLibSql({ url }) });
    for (const statement of TABLES('sqlite')) await db.$executeRawUnsafe(statement);
    await db.stock.create({ data: { item: 'Prisma with SQLite', n: 5 } });
    await refusesLate('Prisma with SQLite', prisma);
    assert.deepEqual(await db.stock.findMany(), [{ item: 'Prisma with SQLite', n: 2 }]);
    const lock = { name: 'outside', fence: 1 };
    await assert.rejects(async () => checkFence(db, lock), /no transaction is open/);
    await db.$disconnect();
  });
});

async function refusesLate(kind: Kind, prisma: string): Promise<void> {
  const { written, late } = await lateWrites([kind], { prisma });
  assert.deepEqual(written, { [kind]: 'written' });
  assert.deepEqual(late, { [kind]: 'ERR_LOCK_STALE_FENCE' });
}

/** Runs statements in a process of a Node that knows SQLite; answers what is in stock. */
async function onSqlite(node: string, statements: string): Promise<number> {
  const source = `
    const { DatabaseSync } = require('node:sqlite')
    const db = new DatabaseSync(process.argv[1])
    db.exec(process.argv[2])
    console.log(db.prepare('SELECT n FROM stock').get().n)`;
  const child = spawn(node, ['-e', source, servers.places.sqlite, statements]);
  let said = '';
  for await (const chunk of child.stdout) said += chunk;
  return Number(said);
}

async function inStock(kind: Kind): Promise<number> {
  const select = `SELECT n FROM stock WHERE item = '${kind}'`;
  if (kind === 'HTTP') return Number(servers.put.get(`/stock/${kind}`));
  if (kind.endsWith('redis')) return Number(await servers.redis.admin.get(`stock:${kind}`));
  const mysql = kind.toLowerCase().includes('mysql');
  const [row] = mysql ? await servers.onMysql(select) : await servers.onPostgres(select);
  return Number(row?.['n']);
}
