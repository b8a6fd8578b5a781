/** Where a release stands: whether an error between it and the acquire skips it. */

import {
  type AnyFunction,
  type CallExpression,
  calledName,
  contains,
  follows,
  type Node,
  type Source,
} from './source.js';

/** Whether a release runs however the work after `take` ends: in a finally block, or a callback of `.finally(…)`. */
export function isInFinally(source: Source, release: Node, take: Node): boolean {
  return isInClause(source, release, take, (each, parent) =>
    parent.type === 'TryStatement'
      ? parent.finalizer === each
      : isArgument(parent, each, 'finally', 0),
  );
}

/** Whether a release runs after an error of the work after `take`: in a catch clause, or a callback of a promise. */
export function isInCatch(source: Source, release: Node, take: Node): boolean {
  return isInClause(
    source,
    release,
    take,
    (each, parent) =>
      each.type === 'CatchClause' ||
      isArgument(parent, each, 'catch', 0) ||
      isArgument(parent, each, 'then', 1),
  );
}

/** A clause that holds the acquire, too, ends something that came before it. */
function isInClause(
  source: Source,
  release: Node,
  take: Node,
  isClause: (each: Node, parent: Node) => boolean,
): boolean {
  let each = release;
  for (const parent of source.around(release)) {
    if (contains(each, take)) return false;
    if (isClause(each, parent)) return true;
    each = parent;
  }
  return false;
}

function isArgument(call: Node, node: Node, name: string, index: number): boolean {
  return (
    call.type === 'CallExpression' && call.arguments[index] === node && calledName(call) === name
  );
}

/**
 * The last release of `frees`, if an error of the work between it and the acquire `take` skips it; undefined if none is sure
 * to be skipped. All are in the function `here`.
 */
export function skippedRelease(
  source: Source,
  here: AnyFunction,
  take: CallExpression,
  frees: readonly CallExpression[],
): Node | undefined {
  const after = frees.filter((free) => follows(free, take));
  const last = after.at(-1);
  if (last === undefined || frees.some((free) => source.functionOf(free) !== here))
    return undefined;
  // One in a catch clause and one after it are as good as a finally block, or nearly.
  if (after.some((free) => isInFinally(source, free, take) || isInCatch(source, free, take)))
    return undefined;
  const works = source
    .callsWithin(here)
    .some(
      (call) =>
        follows(call, take) &&
        follows(last, call) &&
        !frees.includes(call) &&
        source.parent(call).type === 'AwaitExpression' &&
        source.functionOf(call) === here &&
        !isPause(call),
    );
  return works && !isSwallowed(source, here, take, last) ? last : undefined;
}

/** Whether a call only waits, so that it does not fail. */
function isPause(call: CallExpression): boolean {
  return /^(sleep|delay|pause|wait|backoff|timeout|setTimeout)(For|Ms|Async|Seconds)?$/i.test(
    calledName(call),
  );
}

/** Whether a try statement between the two catches what the work throws. */
function isSwallowed(source: Source, here: AnyFunction, take: Node, free: Node): boolean {
  return source
    .within(here)
    .some(
      (each) =>
        each.type === 'TryStatement' &&
        each.handler !== null &&
        follows(each, take) &&
        follows(free, each),
    );
}
