/** What a token tells about its owner, and the tags that lead keys to a slot. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { hostname } from 'node:os';
import { test } from 'node:test';

interface Internals {
  readonly tokens: {
    askedAt(token: string): Date | null;
    labelOf(token: string): string | undefined;
    clientOf(token: string): string | null;
    numberOf(token: string, client: string): number;
    shareOf(token: string): { permits: number; limit: number | null };
    termsOf(limit: number, permits: number): string;
    permitsIn(terms: string): number;
  };
  adviceOnGone(label: string | undefined): string | undefined;
  slotTagOf(key: string): string;
}

// They are internal: they are reached by path, past the package's exports.
const { tokens, adviceOnGone, slotTagOf } = require('../../../dist/internals.js') as Internals;

const START = Date.UTC(2026, 0, 2, 3, 4, 5);
const CLIENT = `${START.toString(16).padStart(12, '0')}7abc8${'0'.repeat(15)}`;

test('when the owner asked: the start of its client, and units of 4 µs since then', () => {
  assert.deepEqual(tokens.askedAt(`hf1.${CLIENT}.0`), new Date(START));
  assert.deepEqual(tokens.askedAt(`hf1.${CLIENT}.250000.shop`), new Date(START + 1_000));
  for (const other of ['', 'other', `hf1.${CLIENT}`, `hf1.${'0'.repeat(32)}.5`, `hf2.${CLIENT}.5`])
    assert.equal(tokens.askedAt(other), null, other);
});

test('the label: all behind the number, up to a space', () => {
  assert.equal(tokens.labelOf(`hf1.${CLIENT}.5.shop.1`), 'shop.1');
  assert.equal(tokens.labelOf(`hf1.${CLIENT}.5.shop.1 {"done":true}`), 'shop.1');
  assert.equal(tokens.labelOf(`hf1.${CLIENT}.5`), undefined);
  assert.equal(tokens.labelOf('other.5.shop'), undefined);
});

test('the client and the number: only of a token of holdfast, and the number of one client', () => {
  assert.equal(tokens.clientOf(`hf1.${CLIENT}.5 done`), CLIENT);
  assert.equal(tokens.clientOf(`hf1.${CLIENT}`), null);
  assert.equal(tokens.clientOf('a.b.5'), null);
  assert.equal(tokens.numberOf(`hf1.${CLIENT}.57.shop`, CLIENT), 57);
  assert.equal(tokens.numberOf(`hf1.${CLIENT}.57`, 'another'), Number.NaN);
});

test('the limit and the permits of a share stand behind the number, and hide nothing else', () => {
  for (const [limit, permits, terms] of [
    [-1, 1, ''],
    [0, 1, ''],
    [10, 1, '/10'],
    [10, 3, '/10/3'],
    [2 ** 40, 2 ** 39, '/1099511627776/549755813888'],
    [2 ** 53 - 1, 2 ** 53 - 2, '/9007199254740991/9007199254740990'],
  ] as const) {
    assert.equal(tokens.termsOf(limit, permits), terms);
    const token = `hf1.${CLIENT}.250000${terms}.shop/7/8`;
    const told = { permits, limit: limit > 0 ? limit : null };
    assert.deepEqual(tokens.shareOf(token), told);
    assert.equal(tokens.permitsIn(terms), told.permits);
    assert.equal(tokens.labelOf(token), 'shop/7/8');
    assert.equal(tokens.clientOf(token), CLIENT);
    assert.equal(tokens.numberOf(token, CLIENT), 250_000);
    assert.deepEqual(tokens.askedAt(token), new Date(START + 1_000));
  }
  assert.deepEqual(tokens.shareOf('old code'), { permits: 1, limit: null });
});

test('the advice about a holder is for processes of this machine that have ended', () => {
  const { pid } = spawnSync(process.execPath, ['--version']);
  const labelOf = (id: number) => `${hostname().slice(0, 63)}.${id}`;
  assert.match(String(adviceOnGone(labelOf(pid))), new RegExp(`no process ${pid} is seen`));
  assert.equal(adviceOnGone(labelOf(process.pid)), undefined);
  assert.equal(adviceOnGone(`another-machine.${pid}`), undefined);
  assert.equal(adviceOnGone('shop'), undefined);
  assert.equal(adviceOnGone(undefined), undefined);
});

test('a process that may not be signalled is not gone', (t) => {
  t.mock.method(process, 'kill', () => {
    throw Object.assign(new Error('kill EPERM'), { code: 'EPERM' });
  });
  assert.equal(adviceOnGone(`${hostname().slice(0, 63)}.1`), undefined);
});

test('the tag of a slot: that of the hash tag, if the key has one', () => {
  assert.equal(slotTagOf('{item}:queue'), slotTagOf('item'));
  assert.equal(slotTagOf('a{item}b{other}'), slotTagOf('item'));
  assert.notEqual(slotTagOf('{item}'), slotTagOf('{}item'), 'an empty one is none');
  // CLUSTER KEYSLOT 123456789 is 12739, the example of the specification.
  assert.equal(slotTagOf('123456789'), slotTagOf('{123456789}:x'));
});
