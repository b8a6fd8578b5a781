/**
 * Rewrites a lock in its most common form: SET NX, leave if it is held, try the work, and release in the finally block of
 * the same function.
 */

import type { HandLock } from '../find/key-command.js';
import { sameKey } from '../find/keys.js';
import { bare, type Node, nameOf, type Source } from '../find/source.js';
import type { Edit } from './edits.js';
import { indentOf, semicolonOf, wholeLine } from './lines.js';
import { type Site, siteOf } from './manager.js';
import { ttlOption } from './ttl.js';

/** A lock that can be rewritten for sure, by its parts. */
export interface Pair {
  /** The statement that takes it. */
  readonly take: Node;
  /** The test that asks whether it was taken. */
  readonly test: Node;
  /** The call that frees it. */
  readonly release: Node;
  readonly key: string;
  readonly ttl: string;
  readonly site: Site;
  /** Statements that only the old code needs. */
  readonly value: Node | undefined;
}

/** The parts of a lock, if it is of this form. */
export function pairOf(source: Source, { acquire, form, releases }: HandLock): Pair | undefined {
  const [release] = releases;
  if (
    form !== 'set' ||
    acquire?.key === undefined ||
    releases.length !== 1 ||
    release === undefined
  )
    return undefined;
  const { expiry, key, call } = acquire;
  if (!sameKey(source, key, release.key)) return undefined;
  if (expiry === undefined || expiry === 'unknown') return undefined;
  const taken = takenBy(source, call);
  if (taken === undefined) return undefined;
  const block = source.parent(taken.leave);
  if (block.type !== 'BlockStatement') return undefined;
  const next = block.body.find((each) => each.start >= taken.leave.end);
  const freed = source.parent(withCatch(source, release.call));
  const statement = source.parent(freed);
  if (
    next?.type !== 'TryStatement' ||
    freed.type !== 'AwaitExpression' ||
    statement.type !== 'ExpressionStatement'
  )
    return undefined;
  if (next.finalizer === null || !isIn(source, statement, next.finalizer)) return undefined;
  const site = siteOf(source, call.callee);
  if (site === undefined) return undefined;
  return {
    take: taken.statement,
    test: taken.leave,
    release: release.call,
    key: source.textOf(key),
    ttl: ttlOption(source, expiry),
    site,
    value: onlyValue(source, acquire.value, [call, release.call]),
  };
}

/** A call with the `.catch(…)` that follows it. */
function withCatch(source: Source, call: Node): Node {
  const method = source.parent(call);
  const outer = source.parent(method);
  const isCaught =
    method.type === 'MemberExpression' &&
    nameOf(method.property) === 'catch' &&
    outer.type === 'CallExpression' &&
    outer.callee === method;
  return isCaught ? outer : call;
}

/** Whether a statement stands in a finally block, or in a try block that is all in it. */
function isIn(source: Source, statement: Node, finalizer: Node): boolean {
  const block = source.parent(statement);
  if (block === finalizer) return true;
  const inner = source.parent(block);
  return (
    inner.type === 'TryStatement' && inner.block === block && source.parent(inner) === finalizer
  );
}

/** `if ((await set(…)) !== 'OK') leave`, or `const taken = await set(…)` and the same by its name. */
function takenBy(source: Source, call: Node): { statement: Node; leave: Node } | undefined {
  const awaited = source.parent(call);
  if (awaited.type !== 'AwaitExpression') return undefined;
  const holder = source.parent(awaited);
  if (holder.type === 'VariableDeclarator' && holder.id.type === 'Identifier') {
    const { name } = holder.id;
    const statement = source.parent(holder);
    const block = source.parent(statement);
    if (statement.type !== 'VariableDeclaration' || statement.declarations.length !== 1)
      return undefined;
    if (block.type !== 'BlockStatement' || holder.id.typeAnnotation) return undefined;
    const leave = block.body.find((each) => each.start >= statement.end);
    const uses = source.nodes.filter((each) => each.type === 'Identifier' && each.name === name);
    if (leave === undefined || uses.length !== 2) return undefined;
    return isLeave(source, leave, (node) => node.type === 'Identifier' && node.name === name)
      ? { statement, leave }
      : undefined;
  }
  const leave = [...source.around(call)].find((each) => each.type === 'IfStatement');
  if (leave === undefined) return undefined;
  return isLeave(source, leave, (node) => node === call) ? { statement: leave, leave } : undefined;
}

/** Whether a statement leaves the function, or this turn of a loop, if the lock was not taken. */
function isLeave(source: Source, node: Node, isResult: (node: Node) => boolean): boolean {
  if (node.type !== 'IfStatement' || node.alternate !== null) return false;
  const { consequent } = node;
  const last = consequent.type === 'BlockStatement' ? consequent.body.at(-1) : consequent;
  if (last === undefined || !/^(Return|Throw|Continue)Statement$/.test(last.type)) return false;
  const test = bare(node.test);
  if (test.type === 'UnaryExpression')
    return test.operator === '!' && isResult(bare(test.argument));
  if (test.type !== 'BinaryExpression' || !isResult(bare(test.left))) return false;
  const right = source.textOf(test.right);
  return /^!==?$/.test(test.operator)
    ? /^['"`]OK['"`]$/.test(right)
    : /^===?$/.test(test.operator) && right === 'null';
}

/** The declaration of a value that only these calls use. */
function onlyValue(
  source: Source,
  value: Node | undefined,
  calls: readonly Node[],
): Node | undefined {
  if (value?.type !== 'Identifier') return undefined;
  const made = source.resolve(value);
  const declarator = source.parent(made);
  const declaration = source.parent(declarator);
  if (declaration.type !== 'VariableDeclaration' || declaration.declarations.length !== 1)
    return undefined;
  const here = source.functionOf(declaration);
  const uses = source.nodes.filter(
    (each) =>
      each.type === 'Identifier' && each.name === value.name && source.functionOf(each) === here,
  );
  return here !== undefined && uses.length === calls.length + 1 ? declaration : undefined;
}

/** The edits of a lock of this form. */
export function editPair(source: Source, pair: Pair): Edit[] {
  const { take, test, release, key, ttl, value, site } = pair;
  const end = semicolonOf(source);
  const indent = indentOf(source, take.start);
  const taking = `const lock = await ${site.name}.tryAcquire(${key}, { ${ttl} })${end}`;
  const condition = test.type === 'IfStatement' ? test.test : test;
  const asking: Edit = { start: condition.start, end: condition.end, text: 'lock === null' };
  const edits: Edit[] = [
    ...(take === test
      ? [{ start: take.start, end: take.start, text: `${taking}\n${indent}` }, asking]
      : [{ start: take.start, end: take.end, text: taking }, asking]),
    { start: release.start, end: release.end, text: 'lock.release()' },
  ];
  return value === undefined ? edits : [...edits, wholeLine(source, value)];
}
