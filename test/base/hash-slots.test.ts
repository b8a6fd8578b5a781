/** The slots of a Cluster: the part of a key that counts, and the number that leads other keys there. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { slotOf, slotOfKey } from '../support/hash-slots.js';

interface Internals {
  hashTagOf(key: string): string | undefined;
  slotTagOf(key: string): string;
}

const { hashTagOf, slotTagOf } = require('../../../dist/internals.js') as Internals;

test('the tag of a key is between its first brace and the next one that closes', () => {
  const tags: [string, string | undefined][] = [
    ['{a}b', 'a'],
    ['a{b}{c}', 'b'],
    ['a}b{c}', 'c'],
    ['{{a}}', '{a'],
    ['{}{a}', undefined],
    ['a{b', undefined],
    ['ab', undefined],
  ];
  for (const [key, tag] of tags) assert.equal(hashTagOf(key), tag, key);
});

test('the number for a slot is the smallest that is in it', () => {
  const first = new Map<number, number>();
  for (let number = 0; first.size < 16_384; number += 1) {
    const slot = slotOf(`${number}`);
    if (!first.has(slot)) first.set(slot, number);
  }
  const keys = Array.from({ length: 40 }, (_, i) => `item:${i}`);
  for (const key of [...keys, 'x{1}', 'x{0}', 'größe:{äö}', '{}x']) {
    assert.equal(slotTagOf(key), `${first.get(slotOfKey(key))}`, key);
  }
});
