/** Whether two commands use the same key. */

import { bare, type Node, type Source } from './source.js';
import { saysLock } from './words.js';

/** Texts that name a key: two commands that share one use the same key. */
export function keysOf(source: Source, key: Node | undefined): Set<string> {
  const keys = new Set<string>();
  if (key === undefined) return keys;
  const flat = (node: Node) =>
    source
      .textOf(node)
      .replace(/\s+/g, '')
      .replace(/\bthis\._?/g, '');
  for (const node of [bare(key), source.resolve(key)]) {
    keys.add(flat(node));
    if (node.type !== 'CallExpression') continue;
    // A function makes the same kind of key from other arguments.
    const fixed = node.arguments.filter((each) => each.type === 'Literal').map(flat);
    if (fixed.length > 0 || saysLock(flat(node.callee))) keys.add(`${flat(node.callee)}(${fixed})`);
  }
  const text = source.string(key);
  if (text !== undefined && /[a-z]{2}/i.test(text)) keys.add(text);
  return keys;
}

export function sameKey(source: Source, a: Node | undefined, b: Node | undefined): boolean {
  const keys = keysOf(source, a);
  return [...keysOf(source, b)].some((key) => keys.has(key));
}
