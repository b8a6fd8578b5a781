/** Which process waits for which, as the page finds it. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { ROOT } from '../../support/child.js';

interface Person {
  readonly client: string;
  readonly state?: string;
}

interface Row {
  readonly name: string;
  readonly kind: string;
  readonly holders: readonly Person[];
  readonly waiters: readonly Person[];
}

interface Step {
  readonly lock: Row;
  readonly others: number;
  readonly holder: Person;
  readonly circle: boolean;
}

interface Found {
  readonly chains: readonly (readonly Step[])[];
  readonly more: number;
  readonly cut: boolean;
}

type New = new (
  locks: Iterable<Row>,
) => { chainsFrom(lock: Row): Found; heldBy(client: string): readonly Row[] };

let Processes: New;

before(async () => {
  const path = join(ROOT, 'ui', 'chain.mjs');
  ({ Processes } = await import(path));
});

function row(name: string, holders: string[], waiters: string[], kind = 'lock'): Row {
  const people = (clients: string[], state?: string) =>
    clients.map((client) => (state === undefined ? { client } : { client, state }));
  return { name, kind, holders: people(holders, 'held'), waiters: people(waiters) };
}

function chainsOf(lock: Row, ...others: Row[]): string[] {
  const { chains } = new Processes([lock, ...others]).chainsFrom(lock);
  return chains.map((chain) =>
    chain
      .map(({ lock: { name }, others: more, holder, circle }) => {
        return `${name}${more > 0 ? `+${more}` : ''} ${holder.client}${circle ? ' again' : ''}`;
      })
      .join(', '),
  );
}

test('a process that waits for the lock that it holds is in its wait queue alone', () => {
  assert.deepEqual(chainsOf(row('a', ['p'], ['p', 'q'])), []);
});

test('a chain ends at a process that waits for nothing, and at one that it has been to', () => {
  const [a, b, c] = [row('a', ['p'], ['r']), row('b', ['q'], ['p']), row('c', ['r'], ['q'])];
  assert.deepEqual(chainsOf(a, b), ['a p, b q']);
  assert.deepEqual(chainsOf(a, b, c), ['a p, b q, c r, a p again']);
});

test('locks of the same two processes are one step', () => {
  const locks = Array.from({ length: 20 }, (_, i) => [
    row(`a${i}`, ['p'], ['q']),
    row(`b${i}`, ['q'], ['p']),
  ]).flat();
  const [first, ...others] = locks as [Row, ...Row[]];
  assert.deepEqual(chainsOf(first, ...others), ['a0 p, b0+19 q, a0+19 p again']);
});

test('the way on from a process is told once', () => {
  const shared = row('s', ['p', 'q'], ['x']);
  const found = chainsOf(shared, row('a', ['r'], ['p', 'q']), row('b', ['t'], ['r']));
  assert.deepEqual(found, ['s q, a r', 's p, a r, b t']);
});

test('campaigns, finished slots and idle locks keep no caller waiting', () => {
  const a = row('a', ['p'], ['x']);
  assert.deepEqual(chainsOf(a, row('leader:l', ['q'], ['p'], 'leader')), []);
  for (const state of ['done', 'idle']) {
    const left = { ...row('b', [], ['p']), holders: [{ client: 'q', state }] };
    assert.deepEqual(chainsOf(a, left), []);
    assert.deepEqual(new Processes([left]).heldBy('q'), []);
  }
});

test('the search looks at a bounded part of any number of locks', () => {
  let looked = 0;
  const clients = Array.from({ length: 500 }, (_, i) => `p${i}`);
  const waiters = clients.map((client) => ({ client }));
  const locks: Row[] = Array.from({ length: 5_000 }, (_, i) => {
    const client = clients[i % clients.length] as string;
    const holder = {
      state: 'held',
      get client() {
        looked += 1;
        return client;
      },
    };
    return { name: `l${i}`, kind: 'lock', holders: [holder], waiters };
  });
  const processes = new Processes(locks);
  // Making it reads what was sent once.
  assert.ok(looked <= 10 * locks.length, `${looked} holders read`);
  looked = 0;
  const { chains, more, cut } = processes.chainsFrom(locks[0] as Row);
  assert.ok(looked <= 100_000, `${looked} holders read`);
  assert.equal(chains.length, 20);
  assert.ok(more > 0 && cut);
});
