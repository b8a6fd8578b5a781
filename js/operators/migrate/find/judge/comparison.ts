/** Whether a release frees only its own lock. */

import { routineOf } from '../callbacks.js';
import type { Commands, HandLock, KeyCommand } from '../key-command.js';
import { sameKey } from '../keys.js';
import type { Fault } from '../lock.js';
import {
  type CallExpression,
  calledName,
  contains,
  follows,
  isFunction,
  type Node,
  type Source,
} from '../source.js';

export function judgeRelease(
  source: Source,
  { acquire, releases }: HandLock,
  { all }: Commands,
): Fault[] {
  return releases.flatMap((release): Fault[] => {
    const here = routineOf(source, release.call, all);
    if (isFunction(here) && /force|reset|clear/i.test(source.nameOfFunction(here))) return [];
    const inside = all.filter(({ call }) => contains(here, call));
    if (inside.some(({ verb, script }) => verb === 'watch' || script === 'release')) return [];
    const gets = inside.filter(
      ({ verb, call, key }) =>
        (verb === 'get' || verb === 'getset') &&
        call.start < release.call.start &&
        !precedes(source, call, acquire, all) &&
        sameKey(source, key, release.key),
    );
    if (gets.some(({ verb }) => verb === 'getset')) return [];
    const rule =
      (gets.length > 0 && isGuarded(source, release.call, here)) ||
      asksOwner(source, release.call, here)
        ? 'compare-and-delete-in-two-commands'
        : 'release-without-compare';
    return [{ rule, node: release.call }];
  });
}

/** Whether a look at the key comes before the same function takes the lock. */
function precedes(
  source: Source,
  look: CallExpression,
  acquire: KeyCommand | undefined,
  all: readonly KeyCommand[],
): boolean {
  if (acquire === undefined || look.start > acquire.call.start) return false;
  return routineOf(source, look, all) === routineOf(source, acquire.call, all);
}

/** Functions that tell who owns a lock. */
const ASKS = /owner|holder|holds|isMine|isLeader|verify/i;

/** Whether an `if` around a call asks another function who owns the lock, or the call is in a callback of one that does. */
function asksOwner(source: Source, call: CallExpression, here: Node): boolean {
  let isInside = true;
  for (const each of source.around(call)) {
    if (each === here) isInside = false;
    if (each.type === 'CallExpression' && each.arguments.some((one) => contains(one, call)))
      if (ASKS.test(calledName(each))) return true;
    if (each.type !== 'IfStatement' || !isInside) continue;
    if (source.callsWithin(each.test).some((ask) => ASKS.test(calledName(ask)))) return true;
  }
  return false;
}

/** Whether something decides that a call is made: an `if` around it, or one before it that leaves. */
function isGuarded(source: Source, call: CallExpression, here: Node): boolean {
  for (const each of source.around(call)) {
    if (each === here) break;
    if (/^(IfStatement|ConditionalExpression|LogicalExpression)$/.test(each.type)) return true;
  }
  return source.within(here).some(
    (each) =>
      each.type === 'IfStatement' &&
      follows(call, each) &&
      source
        .within(each.consequent)
        .concat(each.consequent)
        .some((part) => /^(Return|Throw)Statement$/.test(part.type)),
  );
}
