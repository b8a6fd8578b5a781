/** Commands in a MULTI or a pipeline. */

import {
  bare,
  type CallExpression,
  calledName,
  type Node,
  receiverOf,
  type Source,
} from './source.js';

/** Whether a call is part of the same MULTI as another: in one chain of methods, or on one transaction. */
export function sameTransaction(source: Source, a: CallExpression, b: CallExpression): boolean {
  const [one, two] = [rootOf(source, a), rootOf(source, b)];
  if (!one.isMulti || !two.isMulti) return false;
  return one.text === two.text;
}

/** Whether a call only adds to a MULTI or a pipeline, whose `exec` has the result. */
export function isQueued(source: Source, call: CallExpression): boolean {
  return rootOf(source, call).isMulti;
}

/** The object at the beginning of a chain of calls. */
function rootOf(source: Source, call: CallExpression): { text: string; isMulti: boolean } {
  let isMulti = false;
  let at: Node = call;
  for (;;) {
    const receiver = at.type === 'CallExpression' ? receiverOf(at) : undefined;
    if (receiver === undefined) break;
    if (at.type === 'CallExpression' && /^(multi|pipeline|batch|transaction)$/.test(calledName(at)))
      isMulti = true;
    at = bare(receiver);
  }
  const resolved = source.resolve(at);
  if (resolved.type === 'CallExpression' && /^(multi|pipeline|batch)$/.test(calledName(resolved)))
    isMulti = true;
  return { text: source.textOf(at), isMulti };
}
