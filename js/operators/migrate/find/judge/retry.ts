/** How code waits for a lock. */

import { routinesOf } from '../callbacks.js';
import type { Commands, KeyCommand } from '../key-command.js';
import type { Fault } from '../lock.js';
import {
  type AnyFunction,
  type CallExpression,
  calledName,
  contains,
  type Node,
  type Source,
} from '../source.js';

/** Calls that may pause a loop, or wake it. */
const PAUSES = /sleep|delay|wait|timeout|pause|backoff|interval|blpop|subscribe|once/i;

type Loop = Extract<Node, { type: 'WhileStatement' | 'DoWhileStatement' | 'ForStatement' }>;

export function judgeRetry(source: Source, { call }: KeyCommand, { all }: Commands): Fault[] {
  const here = source.functionOf(call);
  for (const each of source.around(call)) {
    if (each === here) break;
    if (isLoop(each)) return isRetry(source, each, call) ? judgeLoop(source, each) : [];
  }
  for (const each of routinesOf(source, call, all)) {
    const faults = judgeRecursion(source, each);
    if (faults.length > 0) return faults;
  }
  return [];
}

function isLoop(node: Node): node is Loop {
  return /^(DoWhile|While|For)Statement$/.test(node.type);
}

function judgeLoop(source: Source, loop: Loop): Fault[] {
  const parts = source.within(loop);
  const pauses = parts.some((each) =>
    each.type === 'CallExpression'
      ? PAUSES.test(calledName(each))
      : each.type === 'NewExpression' && source.textOf(each.callee) === 'Promise',
  );
  const faults: Fault[] = pauses ? [] : [{ rule: 'busy-polling', node: loop }];
  return parts.some(mayEnd) ? faults : [...faults, { rule: 'retry-without-deadline', node: loop }];
}

/** Whether a part of a loop may count attempts, look at a clock or leave. */
function mayEnd(part: Node): boolean {
  if (part.type === 'BinaryExpression') return /^[<>]=?$/.test(part.operator);
  if (part.type === 'Identifier')
    return /abort|deadline|signal|cancel|stopp|running|shutdown/i.test(part.name);
  return part.type === 'ThrowStatement' || part.type === 'UpdateExpression';
}

/** Whether a loop repeats the acquire until it succeeds: the result ends the loop. */
function isRetry(source: Source, loop: Loop, call: CallExpression): boolean {
  if (loop.test && contains(loop.test, call)) return true;
  const declared = [...source.around(call)].find(
    (each) => each.type === 'VariableDeclarator' || each.type === 'AssignmentExpression',
  );
  const name =
    declared?.type === 'VariableDeclarator'
      ? source.textOf(declared.id)
      : declared?.type === 'AssignmentExpression'
        ? source.textOf(declared.left)
        : undefined;
  if (loop.test && name !== undefined && source.textOf(loop.test).includes(name)) return true;
  return source.within(loop.body).some((each) => {
    if (each.type !== 'IfStatement') return false;
    const asks =
      contains(each.test, call) || (name !== undefined && source.textOf(each.test).includes(name));
    return (
      asks &&
      source
        .within(each.consequent)
        .concat(each.consequent)
        .some((part) => part.type === 'BreakStatement' || part.type === 'ReturnStatement')
    );
  });
}

/** A function that calls itself again after a pause, and counts nothing. */
function judgeRecursion(source: Source, here: AnyFunction): Fault[] {
  const name = source.nameOfFunction(here);
  if (name === '') return [];
  const again = source
    .callsWithin(here)
    .find((call) => calledName(call) === name || isScheduled(source, call, name));
  if (again === undefined) return [];
  const parts = source.within(here);
  const counts = parts.some(
    (each) =>
      (each.type === 'BinaryExpression' && /^[<>]=?$/.test(each.operator)) ||
      each.type === 'UpdateExpression' ||
      each.type === 'ThrowStatement' ||
      (each.type === 'BinaryExpression' && /^[-]$/.test(each.operator)) ||
      (each.type === 'CallExpression' && calledName(each) === 'reject'),
  );
  const waits = parts.some(
    (each) => each.type === 'CallExpression' && PAUSES.test(calledName(each)),
  );
  return counts || !waits ? [] : [{ rule: 'retry-without-deadline', node: again }];
}

function isScheduled(source: Source, call: CallExpression, name: string): boolean {
  const [first] = call.arguments;
  return calledName(call) === 'setTimeout' && first !== undefined && source.textOf(first) === name;
}
