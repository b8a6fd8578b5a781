/** Where a release stands: whether an error between it and the acquire skips it. */

import {
  type AnyFunction,
  type CallExpression,
  calledName,
  type Node,
  type Source,
} from './source.js';

export function isInFinally(source: Source, node: Node): boolean {
  return [...source.around(node)].some((each) => {
    const parent = source.parent(each);
    if (parent?.type === 'TryStatement' && parent.finalizer === each) return true;
    return each.type === 'CallExpression' && calledName(each) === 'finally';
  });
}

export function isInCatch(source: Source, node: Node): boolean {
  return [...source.around(node)].some(
    (each) =>
      each.type === 'CatchClause' ||
      (each.type === 'CallExpression' && calledName(each) === 'catch'),
  );
}

/** The calls between an acquire and the last of its releases that are awaited, and free nothing. */
export function awaitedBetween(
  source: Source,
  here: AnyFunction,
  take: Node,
  frees: readonly CallExpression[],
  last: Node,
): CallExpression[] {
  return source
    .callsWithin(here)
    .filter(
      (call) =>
        call.start > take.end &&
        call.end < last.start &&
        !frees.includes(call) &&
        source.parent(call)?.type === 'AwaitExpression',
    );
}

/** Whether a try statement between the two catches what the work throws. */
export function isSwallowed(source: Source, here: AnyFunction, take: Node, free: Node): boolean {
  return source
    .within(here)
    .some(
      (each) =>
        each.type === 'TryStatement' &&
        each.handler !== null &&
        each.start > take.end &&
        each.end < free.start,
    );
}
