/** Whether code asks if it got the lock. */

import { answerOf, isCallback } from '../callbacks.js';
import type { HandLock, KeyCommand } from '../key-command.js';
import type { Fault } from '../lock.js';
import type { CallExpression, Node, Source } from '../source.js';
import { isQueued } from '../transactions.js';

export function judgeResult(
  source: Source,
  { form, node }: HandLock,
  { call }: KeyCommand,
): Fault[] {
  if (/^(check|blind|incr|getset)$/.test(form) || isQueued(source, call)) return [];
  return isIgnored(source, call) ? [{ rule: 'result-not-checked', node }] : [];
}

function isIgnored(source: Source, call: CallExpression): boolean {
  const answer = answerOf(source, call);
  if (answer !== undefined) {
    const { callback, param } = answer;
    if (param === undefined) return !takesMore(source, callback);
    return param.type === 'Identifier' && usesOf(source, callback, param.name) < 2;
  }
  // A callback by a name may check it.
  if (call.arguments.slice(2).some((each) => isCallback(source, each))) return false;
  const parent = source.parent(call);
  const outer = parent.type === 'AwaitExpression' ? source.parent(parent) : parent;
  if (outer.type === 'ExpressionStatement') return true;
  if (outer.type !== 'VariableDeclarator' || outer.id.type !== 'Identifier') return false;
  return usesOf(source, source.functionOf(call) ?? source.program, outer.id.name) < 2;
}

/** Whether a function reads arguments that it does not name: all of them, or the rest. */
function takesMore(source: Source, callback: Node): boolean {
  return source
    .within(callback)
    .some(
      (each) =>
        each.type === 'RestElement' || (each.type === 'Identifier' && each.name === 'arguments'),
    );
}

function usesOf(source: Source, here: Node, name: string): number {
  return source.within(here).filter((each) => each.type === 'Identifier' && each.name === name)
    .length;
}
