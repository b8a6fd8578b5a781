/** The arguments of SET behind its key and value. */

import { isCallback } from './callbacks.js';
import type { Expiry, KeyCommand } from './key-command.js';
import { type Node, nameOf, type Source } from './source.js';

/** The expiries of SET, by their words. */
const UNITS = {
  EX: { unit: 's' },
  PX: { unit: 'ms' },
  EXAT: { unit: 's', isTime: true },
  PXAT: { unit: 'ms', isTime: true },
} as const;

/** The same as GLIDE names them. */
const WORDS: Readonly<Record<string, keyof typeof UNITS>> = {
  Seconds: 'EX',
  Milliseconds: 'PX',
  UnixSeconds: 'EXAT',
  UnixMilliseconds: 'PXAT',
};

/** The arguments of SET behind its key and value: words in any order, or an object. */
export function readFlags(
  source: Source,
  rest: readonly Node[],
): Pick<KeyCommand, 'nx' | 'expiry'> {
  let nx = false;
  let expiry: KeyCommand['expiry'];
  const others: Node[] = [];
  for (const [i, each] of rest.entries()) {
    const word = source.string(each)?.toUpperCase();
    const next = rest[i + 1];
    const resolved = source.resolve(each);
    if (word === 'NX') nx = true;
    else if (word !== undefined && next !== undefined && word in UNITS)
      expiry = { ...UNITS[word as keyof typeof UNITS], amount: next };
    else if (resolved.type === 'ObjectExpression') {
      const read = readOptions(source, resolved);
      nx ||= read.nx === true;
      expiry ??= read.expiry;
    } else if (!isCallback(source, each)) others.push(each);
  }
  // SET takes no other words: what is neither a word nor an amount may be a whole expiry, as of a wrapper.
  if (expiry === undefined && others.length > 0) expiry = 'unknown';
  return { nx, expiry };
}

function readOptions(source: Source, options: Node): Pick<KeyCommand, 'nx' | 'expiry'> {
  let nx = false;
  let expiry: KeyCommand['expiry'];
  if (options.type !== 'ObjectExpression') return {};
  for (const property of options.properties) {
    if (property.type === 'SpreadElement') {
      const read = readOptions(source, source.resolve(property.argument));
      nx ||= read.nx === true;
      expiry ??= read.expiry ?? 'unknown';
      continue;
    }
    const name = nameOf(property.key).toLowerCase();
    const value = source.resolve(property.value);
    if (name === 'nx') nx = !(value.type === 'Literal' && value.value === false);
    if (name === 'condition' || name === 'mode' || name === 'setmode')
      nx ||= /\bNX\b/i.test(source.textOf(value));
    nx ||= /onlyIfDoesNotExist/i.test(source.textOf(value));
    const unit = UNITS[name.toUpperCase() as keyof typeof UNITS];
    if (unit !== undefined) expiry = { ...unit, amount: property.value };
    if (name === 'ttl') expiry = 'unknown';
    if (name === 'expiration' || name === 'expiry') expiry = readExpiration(source, value);
  }
  return { nx, expiry };
}

/** `{ type: 'PX', value }` of node-redis 5, and `{ type: TimeUnit.Milliseconds, count }` of GLIDE. */
function readExpiration(source: Source, node: Node): Expiry | 'unknown' {
  if (node.type === 'NewExpression') return { unit: 'ms', isTime: true, amount: node };
  if (node.type !== 'ObjectExpression') return 'unknown';
  const found: Record<string, Node> = {};
  for (const property of node.properties)
    if (property.type === 'Property') found[nameOf(property.key)] = property.value;
  const amount = found['value'] ?? found['count'];
  const type = found['type'];
  if (amount === undefined || type === undefined) return 'unknown';
  const word = (source.string(type) ?? source.textOf(type)).replace(/^.*\./, '');
  const unit = UNITS[(WORDS[word] ?? word.toUpperCase()) as keyof typeof UNITS];
  return unit === undefined ? 'unknown' : { ...unit, amount };
}
