/** Whether a crash or a clock may keep a lock too long, or free it too early. */

import { laterExpiry } from '../expiries.js';
import type { Commands, HandLock, KeyCommand } from '../key-command.js';
import { sameKey } from '../keys.js';
import type { Fault } from '../lock.js';
import type { Node, Source } from '../source.js';
import { sameTransaction } from '../transactions.js';

/** A time that code reads, and a name that it may have. */
const CLOCK = /Date\.now\(\)|new Date\b|getTime\(\)|\b(moment|dayjs)\(/;
const TIME = /^(now|expires?|expiry|expiration|expires?_?at|deadline|until)$/i;

export function judgeExpiry(
  source: Source,
  { form }: HandLock,
  acquire: KeyCommand,
  commands: Commands,
): Fault[] {
  const faults: Fault[] =
    form === 'check'
      ? [{ rule: 'check-then-set', node: acquire.call }]
      : form === 'blind'
        ? [{ rule: 'set-without-condition', node: acquire.call }]
        : [];
  if (form === 'script' || acquire.expiry !== undefined) return faults;
  return [...faults, ...judgeLateExpiry(source, acquire, commands)];
}

/** Judges a lock that is taken without an expiry. */
function judgeLateExpiry(source: Source, acquire: KeyCommand, { all }: Commands): Fault[] {
  const later = laterExpiry(source, acquire, all);
  if (later !== undefined) {
    const isTogether = sameTransaction(source, later.call, acquire.call);
    const rule = isTogether ? 'expiry-set-by-losers' : 'expiry-in-second-command';
    return [{ rule, node: later.call }];
  }
  if (endsByClock(source, acquire, all)) return [{ rule: 'expiry-by-clock', node: acquire.call }];
  // An expiry of some other key may be that of this one, by another name.
  if (all.some(({ verb }) => verb === 'expire')) return [];
  return [{ rule: 'no-expiry', node: acquire.call }];
}

/** Whether the value is a time, which code that reads the key compares with its clock. */
function endsByClock(source: Source, acquire: KeyCommand, all: readonly KeyCommand[]): boolean {
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
  return [node, given].some(
    (each) =>
      CLOCK.test(source.textOf(each)) || (each.type === 'Identifier' && TIME.test(each.name)),
  );
}
