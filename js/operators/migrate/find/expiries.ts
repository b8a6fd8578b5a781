/** Expiries that the command does not set that takes the lock. */

import { routineOf } from './callbacks.js';
import type { KeyCommand } from './key-command.js';
import { sameKey } from './keys.js';
import { contains, follows, type Node, nameOf, type Source } from './source.js';
import { sameTransaction } from './transactions.js';

/** A time that code reads, and a name that it may have. */
const CLOCK = /Date\.now\(\)|new Date\b|getTime\(\)|\b(moment|dayjs)\(/;
const TIME = /^(now|expires?|expiry|expiration|expires?_?at|deadline|until)$/i;

/** The expiry that the code gives a lock that is taken without one: by a later command, or as a time in the value. */
export function lateExpiry(
  source: Source,
  acquire: KeyCommand,
  all: readonly KeyCommand[],
): KeyCommand['expiry'] {
  const later = laterExpiry(source, acquire, all);
  if (later !== undefined) {
    const { expiry } = later;
    // A wrapper of SETEX may take the value before the expiry.
    const isValue =
      typeof expiry === 'object' &&
      typeof expiry.amount === 'object' &&
      acquire.value !== undefined &&
      source.textOf(expiry.amount) === source.textOf(acquire.value);
    return isValue ? 'unknown' : expiry;
  }
  if (acquire.value === undefined || !endsByClock(source, acquire, all)) return undefined;
  return { unit: 'ms', isTime: true, amount: source.resolve(acquire.value) };
}

/** Whether a command only sets an expiry, or writes the value again with one. */
function isLater(acquire: KeyCommand, { verb, nx, expiry, call }: KeyCommand): boolean {
  if (verb === 'expire') return true;
  return nx !== true && expiry !== undefined && follows(call, acquire.call);
}

/** The command that sets the expiry of a lock: in the same MULTI, or else in the same function, or else anywhere. */
export function laterExpiry(
  source: Source,
  acquire: KeyCommand,
  all: readonly KeyCommand[],
): KeyCommand | undefined {
  const later = all.filter(
    (each) => isLater(acquire, each) && sameKey(source, each.key, acquire.key),
  );
  const here = routineOf(source, acquire.call, all);
  return (
    later.find(({ call }) => sameTransaction(source, call, acquire.call)) ??
    later.find(({ call }) => contains(here, call)) ??
    later[0]
  );
}

/** Whether the value is a time, which code that reads the key compares with its clock. */
export function endsByClock(
  source: Source,
  acquire: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  if (acquire.value === undefined || !isTime(source, acquire.value)) return false;
  const reads = all.some(
    ({ verb, key }) => (verb === 'get' || verb === 'getset') && sameKey(source, key, acquire.key),
  );
  return (
    reads &&
    source.nodes.some(
      (each) =>
        each.type === 'BinaryExpression' &&
        /^[<>]=?$/.test(each.operator) &&
        [each.left, each.right].some((side) => isTime(source, side)),
    )
  );
}

/** Whether an expression is a time, by what it reads or by its name: a text that speaks of one is none. */
function isTime(source: Source, given: Node): boolean {
  const node = source.resolve(given);
  if (node.type === 'Literal') return false;
  // `String(until)`
  const [inner] = node.type === 'CallExpression' ? node.arguments : [];
  if (inner !== undefined && node.type === 'CallExpression' && nameOf(node.callee) === 'String')
    return isTime(source, inner);
  return [node, given].some(
    (each) =>
      CLOCK.test(source.textOf(each)) || (each.type === 'Identifier' && TIME.test(each.name)),
  );
}
