/** Locks that are taken without a condition in the command: by a look before it, by a count, or not at all. */

import { resultName, routineOf } from './callbacks.js';
import type { KeyCommand } from './key-command.js';
import { sameKey } from './keys.js';
import { namesAround } from './releases.js';
import { bare, type CallExpression, contains, type Node, type Source } from './source.js';
import { saysLock, wordsOf } from './words.js';

/** The first word of a function that takes a lock. */
const TAKING = /^(acquire|lock|obtain|take|get|try)$/;

/** `incr(key) === 1`, also by a name. */
export function isTakenByCount(
  source: Source,
  { call }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const name = resultName(source, call);
  const here = routineOf(source, call, all);
  return source.within(here).some((each) => {
    if (each.type !== 'BinaryExpression' || !/^([=!]==?|>)$/.test(each.operator)) return false;
    const isOne = each.right.type === 'Literal' && each.right.value === 1;
    return (
      isOne && (contains(each.left, call) || (name !== '' && source.textOf(each.left) === name))
    );
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
  if (here === source.program) return false;
  const others = all.filter(
    ({ call, key }) => contains(here, call) && sameKey(source, key, set.key),
  );
  if (others.some(({ nx, verb }) => nx === true || verb === 'getset')) return false;
  return others.some(({ verb, call }) => {
    if ((verb !== 'get' && verb !== 'exists') || call.start > set.call.start) return false;
    return decides(source, here, call, set.call);
  });
}

/** Whether a function that takes a lock by its name sets the key without a condition. */
export function isBlind(
  source: Source,
  { call, key, expiry }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const here = source.functionOf(call);
  if (here === undefined || expiry === undefined || !/redis|valkey/i.test(source.text))
    return false;
  const words = wordsOf(source.nameOfFunction(here));
  if (
    !TAKING.test(words[0] ?? '') ||
    !saysLock(`${namesAround(source, call)} ${source.classOf(call)?.id?.name ?? ''}`)
  )
    return false;
  const others = all.filter((each) => contains(here, each.call) && each.call !== call);
  return !others.some((other) => sameKey(source, other.key, key) || other.nx === true);
}

/** Whether an `if` between two calls asks only whether the first has found something. */
function decides(source: Source, here: Node, look: CallExpression, set: CallExpression): boolean {
  const name = resultName(source, look);
  return source.within(here).some((each) => {
    if (each.type !== 'IfStatement' || each.test.start > set.start) return false;
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

function isPlain(node: Node): boolean {
  return node.type === 'Literal' || (node.type === 'Identifier' && node.name === 'undefined');
}
