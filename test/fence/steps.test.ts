/** The statements of `fencedTransaction` and `checkFence`, on clients that record them, and what is left when one fails. */

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { checkFence, fencedTransaction, StaleFenceError } from 'holdfast/fence';

const LOCK = { name: 'item:42', fence: 33 };

interface Script {
  /** The statement that fails begins so. */
  readonly fails?: string;
  readonly committed?: string;
  readonly seen?: number;
}

/** A client of pg, or of mysql2 with `destroy` and `execute`. */
class Client extends EventEmitter {
  readonly statements: string[] = [];
  readonly ends: unknown[] = [];

  constructor(readonly script: Script) {
    super();
  }

  async query(text: string): Promise<object> {
    this.statements.push(text.split(' ', 1)[0] ?? '');
    if (this.script.fails !== undefined && text.startsWith(this.script.fails)) {
      throw new Error(`${this.script.fails} failed`);
    }
    const { seen = LOCK.fence, committed = 'COMMIT' } = this.script;
    if (text.startsWith('INSERT')) return { rows: seen > LOCK.fence ? [] : [{ fence: seen }] };
    if (text.startsWith('SELECT')) return { rows: [{ fence: `${seen}` }] };
    return { command: text === 'COMMIT' ? committed : text };
  }

  release(error?: unknown): void {
    this.ends.push(['released', error]);
  }
}

/** Runs a transaction on a pool of one client. */
async function transact(script: Script, work: (client: Client) => unknown, more: object = {}) {
  const client = Object.assign(new Client(script), more);
  const pool = { connect: async () => client };
  let error: unknown;
  await fencedTransaction(pool as never, LOCK, async (given) => work(given as never)).catch(
    (reason: unknown) => {
      error = reason;
    },
  );
  assert.equal(client.listenerCount('error'), 0, 'no listener stays on the client');
  return { error, statements: client.statements, ends: client.ends };
}

test('a transaction whose work fails is undone, and its client given back', async () => {
  const wrong = new Error('sold out');
  const { error, statements, ends } = await transact({}, () => Promise.reject(wrong));
  assert.equal(error, wrong);
  assert.deepEqual(statements, ['BEGIN', 'INSERT', 'ROLLBACK']);
  assert.deepEqual(ends, [['released', undefined]]);
});

test('a fence that is refused: the work does not run, and the transaction is undone', async () => {
  const { error, statements } = await transact({ seen: 34 }, () => assert.fail('not to run'));
  assert.ok(error instanceof StaleFenceError);
  assert.deepEqual(statements, ['BEGIN', 'INSERT', 'SELECT', 'ROLLBACK']);
});

test('a COMMIT that was answered by ROLLBACK is an error, and one that fails is undone', async () => {
  const { error } = await transact({ committed: 'ROLLBACK' }, () => 'done');
  assert.match(String(error), /the transaction was rolled back/);
  const failed = await transact({ fails: 'COMMIT' }, () => 'done');
  assert.deepEqual(failed.statements, ['BEGIN', 'INSERT', 'COMMIT', 'ROLLBACK']);
});

test('a client that cannot undo is not used again, and one that cannot begin is given back', async () => {
  const wrong = new Error('sold out');
  const work = () => Promise.reject(wrong);
  const byPg = await transact({ fails: 'ROLLBACK' }, work);
  assert.equal(byPg.error, wrong);
  assert.match(String(byPg.ends), /^released,Error: ROLLBACK failed$/);
  let destroyed = 0;
  const destroy = () => {
    destroyed += 1;
  };
  const byMysql = await transact({ fails: 'ROLLBACK' }, work, { destroy });
  assert.deepEqual([byMysql.ends, destroyed], [[], 1]);
  const { error, ends } = await transact({ fails: 'BEGIN' }, () => assert.fail('not to run'));
  assert.match(String(error), /BEGIN failed/);
  assert.equal(ends.length, 1);
});

test('an error of the connection while the work runs does not end the process', async () => {
  const { error } = await transact({}, (client) => client.emit('error', new Error('ended')));
  assert.equal(error, undefined);
});

test('SQLite: a transaction that fails is undone, and its error is told, also if SQLite undid it itself', () => {
  const statements: string[] = [];
  let isUndone = false;
  const database = {
    exec(text: string) {
      statements.push(text);
      if (text === 'ROLLBACK' && isUndone) throw new Error('no transaction is active');
    },
    prepare: () => ({ all: () => [{ fence: LOCK.fence }] }),
  };
  const fail = () => {
    throw new Error('the disk is full');
  };
  assert.throws(() => fencedTransaction(database, LOCK, fail), /the disk is full/);
  assert.deepEqual(statements.splice(0), ['BEGIN IMMEDIATE', 'ROLLBACK']);
  const promise = () => fencedTransaction(database, LOCK, () => Promise.resolve() as never);
  assert.throws(promise, /a transaction of SQLite is synchronous/);
  assert.deepEqual(statements.splice(0), ['BEGIN IMMEDIATE', 'ROLLBACK']);
  isUndone = true;
  assert.throws(() => fencedTransaction(database, LOCK, fail), /the disk is full/);
});

test('a client of MySQL that does not tell whether a transaction is open is believed', async () => {
  const asked: string[] = [];
  const query = async (text: string) => {
    asked.push(text);
    return [[{ fence: 1 }], []];
  };
  await checkFence({ query, execute: query } as never, { fences: { a: 1 } });
  assert.notEqual(asked.length, 0);
});

test('several fences are raised in one order, and MySQL is asked for what is there now', async () => {
  const asked: string[] = [];
  const tx = (dialect: 'mysql' | 'postgres') => ({
    dialect,
    async query(text: string) {
      asked.push(text);
      return [{ fence: 1 }];
    },
  });
  await checkFence(tx('postgres'), { fences: { b: 2, a: 1, c: 3 } });
  assert.deepEqual(
    asked.splice(0).map((text) => /VALUES \('(.)'/.exec(text)?.[1]),
    ['a', 'b', 'c'],
  );
  await checkFence(tx('mysql'), LOCK);
  assert.match(asked[1] ?? '', /^SELECT fence .* FOR UPDATE$/);
});

test('what has a part of a client of each kind is none', () => {
  const works = () => assert.fail('nothing may be sent');
  const options = { type: 'postgres' };
  for (const part of [
    { dialect: 'postgres' },
    { $connect: works },
    { raw: works },
    { raw: works, client: {} },
    { client: { dialect: 'postgres' }, isTransaction: true },
    { options, isTransactionActive: true },
    { dataSource: { options }, isTransactionActive: true },
    { prepare: works },
    { exec: works },
    { execute: works },
    { totalCount: 1 },
  ]) {
    const check = () => checkFence(part as never, LOCK);
    assert.throws(check, /needs the transaction of a database client, got an object/);
  }
});
