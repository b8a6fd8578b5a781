/** Locks that are taken without a condition in the command: by a look before it, by what was there, by a count, or not at all. */

import { resultName, routineOf } from './callbacks.js';
import { isClient } from './clients.js';
import type { KeyCommand } from './key-command.js';
import { sameKey } from './keys.js';
import { namesAround } from './releases.js';
import {
  bare,
  type CallExpression,
  contains,
  type Node,
  receiverOf,
  type Source,
} from './source.js';
import { saysLock, wordsOf } from './words.js';

/** The first word of a function that takes a lock. */
const TAKING = /^(acquire|lock|obtain|take|get|try)$/;

/** Code about accounts that are locked after wrong passwords. */
const LOCKOUT = /lock_?out|password|credential|login|attempts_|too.?many|account.?lock/i;

/** Whether the client of a command is one of Redis, or the file at least speaks of Redis. */
function isOfRedis(source: Source, call: CallExpression): boolean {
  if (/redis|valkey/i.test(source.text)) return true;
  const receiver = receiverOf(call);
  return receiver !== undefined && isClient(source, receiver);
}

/** `incr(key) === 1`, also by a name. */
export function isTakenByCount(
  source: Source,
  { call }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const name = resultName(source, call);
  const here = routineOf(source, call, all);
  if (LOCKOUT.test(source.textOf(here))) return false;
  return source.within(here).some((each) => {
    if (each.type !== 'BinaryExpression' || !/^([=!]==?|>)$/.test(each.operator)) return false;
    const isOne = each.right.type === 'Literal' && each.right.value === 1;
    return isOne && (contains(each.left, call) || source.textOf(each.left) === name);
  });
}

/** Whether the same function looks first whether the key exists, and sets it only then. */
export function isCheckedBefore(
  source: Source,
  set: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  if (set.key === undefined || !saysLock(source.textOf(set.key) + (source.string(set.key) ?? '')))
    return false;
  const here = routineOf(source, set.call, all);
  if (here === source.program || LOCKOUT.test(source.textOf(here))) return false;
  if (!isOfRedis(source, set.call)) return false;
  const others = all.filter(
    ({ call, key }) => contains(here, call) && sameKey(source, key, set.key),
  );
  if (others.some(({ nx, verb }) => nx === true || verb === 'getset')) return false;
  return others.some(({ verb, call }) => {
    return (verb === 'get' || verb === 'exists') && decides(source, here, call, set);
  });
}

/** Whether code asks what GETSET has found, of a key that no SETNX or SET NX takes. */
export function isTakenBySwap(
  source: Source,
  { call, key }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const same = all.filter((each) => sameKey(source, each.key, key));
  if (same.some((each) => each.nx === true)) return false;
  if (same.find(({ verb }) => verb === 'getset')?.call !== call) return false;
  const name = resultName(source, call);
  const here = routineOf(source, call, all);
  return [here, ...source.within(here)].some((each) => {
    const test =
      each.type === 'IfStatement' || each.type === 'ConditionalExpression' ? each.test : each;
    if (test === each && !/^(Binary|Unary)Expression$/.test(each.type)) return false;
    if (each.type === 'BinaryExpression' && !/[=<>]/.test(each.operator)) return false;
    if (each.type === 'UnaryExpression' && each.operator !== '!') return false;
    return contains(test, call) || mentions(source, test, name);
  });
}

function mentions(source: Source, node: Node, name: string): boolean {
  return [node, ...source.within(node)].some(
    (each) => each.type === 'Identifier' && each.name === name,
  );
}

/** Whether a function that takes a lock by its name sets the key without a condition. */
export function isBlind(
  source: Source,
  { call, key, expiry }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const here = source.functionOf(call);
  if (here === undefined || expiry === undefined || !isOfRedis(source, call)) return false;
  if (LOCKOUT.test(source.textOf(here))) return false;
  const words = wordsOf(source.nameOfFunction(here));
  if (
    !TAKING.test(words[0] ?? '') ||
    !saysLock(`${namesAround(source, call)} ${source.classOf(call)?.id?.name ?? ''}`)
  )
    return false;
  const others = all.filter((each) => contains(here, each.call) && each.call !== call);
  return !others.some((other) => sameKey(source, other.key, key) || other.nx === true);
}

/** Whether an `if` between two commands asks only whether the first has found something, or something else than the second writes. */
function decides(source: Source, here: Node, look: CallExpression, set: KeyCommand): boolean {
  const name = resultName(source, look);
  const isPlain = (node: Node) =>
    node.type === 'Literal' ||
    (node.type === 'Identifier' && node.name === 'undefined') ||
    (set.value !== undefined && source.textOf(node) === source.textOf(set.value));
  return source.within(here).some((each) => {
    if (each.type !== 'IfStatement' || each.test.start > set.call.start) return false;
    const test = bare(each.test);
    const asks = contains(test, look) || (name !== '' && source.textOf(test).includes(name));
    const compares = source
      .within(each.test)
      .concat(test)
      .some(
        (part) => part.type === 'BinaryExpression' && !isPlain(part.right) && !isPlain(part.left),
      );
    return asks && !compares;
  });
}
