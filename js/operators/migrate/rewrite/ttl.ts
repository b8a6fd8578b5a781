/** Expiries of old code as the option `ttl` of holdfast, which is in ms. */

import type { Expiry } from '../find/key-command.js';
import { bare, calledName, type Node, receiverOf, type Source } from '../find/source.js';

/** The option that has an expiry. */
export function ttlOption(source: Source, expiry: Expiry): string {
  const ttl = ttlOf(source, expiry);
  return ttl === 'ttl' ? ttl : `ttl: ${ttl}`;
}

/** The code of an expiry in ms. A value that is no literal stays the expression that it is. */
export function ttlOf(source: Source, { unit, isTime, amount }: Expiry): string {
  if (typeof amount === 'number') return `${unit === 's' ? amount * 1_000 : amount}`;
  const node = plain(source, amount);
  if (isTime !== true) return inMs(source, node, unit);
  const date = node.type === 'NewExpression' ? node.arguments[0] : undefined;
  if (date !== undefined) return ttlOf(source, { unit: 'ms', isTime, amount: date });
  const length = lengthOf(source, node);
  if (length !== undefined) return inMs(source, length, unit);
  return `${inMs(source, node, unit)} - Date.now()`;
}

function inMs(source: Source, node: Node, unit: Expiry['unit']): string {
  const text = source.textOf(node);
  if (node.type === 'Literal') {
    const number = Number(node.value);
    if (unit === 's') return `${Math.round(number * 1_000)}`;
    return typeof node.value === 'number' ? text : `${number}`;
  }
  if (unit === 'ms') return text;
  if (node.type === 'BinaryExpression' && node.operator === '/' && isThousand(source, node.right))
    return source.textOf(node.left);
  const isOneTerm =
    /^(Identifier|MemberExpression|CallExpression|ChainExpression)$/.test(node.type) ||
    (node.type === 'BinaryExpression' && /^[*/]$/.test(node.operator));
  return `${isOneTerm ? text : `(${text})`} * 1000`;
}

function isThousand(source: Source, node: Node): boolean {
  return /^1(_?000|e3)$/.test(source.textOf(node));
}

/** A number that the old code wrote as a text: `String(ttl)`, `ttl.toString()`, `${ttl}`. */
function plain(source: Source, given: Node): Node {
  const node = bare(given);
  if (node.type === 'TemplateLiteral') {
    const [only, ...more] = node.expressions;
    const isAlone = more.length === 0 && node.quasis.every(({ value }) => value.raw === '');
    return only !== undefined && isAlone ? plain(source, only) : node;
  }
  if (node.type !== 'CallExpression') return node;
  const [first] = node.arguments;
  if (source.textOf(node.callee) === 'String' && first !== undefined) return plain(source, first);
  const receiver = receiverOf(node);
  return calledName(node) === 'toString' && receiver !== undefined && first === undefined
    ? plain(source, receiver)
    : node;
}

/** The time that is added to the clock: `Date.now() + 5_000` is 5 s away. */
function lengthOf(source: Source, node: Node): Node | undefined {
  if (node.type !== 'BinaryExpression' || node.operator !== '+') return undefined;
  const isClock = (side: Node) =>
    /^(Date\.now\(\)|Math\.(floor|round|ceil|trunc)\(Date\.now\(\) ?\/ ?1_?000\))$/.test(
      source.textOf(bare(side)),
    );
  // One ms more makes sure that the old lock has ended.
  if (source.textOf(node.right) === '1') return lengthOf(source, bare(node.left));
  if (isClock(node.left)) return plain(source, node.right);
  return isClock(node.right) ? plain(source, node.left) : undefined;
}
