/**
 * Rewrites a lock that one function takes and another one frees, by a token of its own for each hold. The token becomes the
 * owner, by which any process frees the lock, as before.
 */

import type { HandLock, KeyCommand } from '../find/key-command.js';
import { sameKey } from '../find/keys.js';
import {
  type CallExpression,
  contains,
  isFunction,
  type Node,
  type Source,
} from '../find/source.js';
import type { Edit } from './edits.js';
import { type Site, siteOf } from './manager.js';
import { ttlOption } from './ttl.js';

/** A lock of this form, by the edits that rewrite it. */
export interface Apart {
  readonly site: Site;
  readonly edits: readonly Edit[];
}

/** Calls that make a text which no other call makes. */
const UNIQUE =
  /\b(randomUUID|uuid|uuidv?[147]|v[147]|nanoid|ulid|cuid|createId)\(|\brandomBytes\([^)]*\)\.toString\(|Math\.random\(\)\.toString\(/;

/** The lock, if it is of this form. */
export function apartOf(source: Source, { acquire, form, releases }: HandLock): Apart | undefined {
  if (form !== 'set' || acquire?.key === undefined || releases.length === 0) return undefined;
  const { expiry, key, call, value } = acquire;
  if (expiry === undefined || expiry === 'unknown' || value === undefined) return undefined;
  if (!isOwnToken(source, call, value)) return undefined;
  // A function that frees what it has taken can have a lock that is renewed.
  const here = source.functionOf(call) as Node;
  if (releases.some((release) => contains(here, release.call))) return undefined;
  const site = siteOf(source, call.callee);
  if (site === undefined) return undefined;
  const options = `{ owner: ${source.textOf(value)}, ${ttlOption(source, expiry)}, renew: false }`;
  const take = `${site.name}.tryAcquire(${source.textOf(key)}, ${options})`;
  const asked = editUses(source, call, editTaken);
  const freed = releases.map((release) => editRelease(source, site, acquire, release));
  if (asked === undefined || freed.some((each) => each === undefined)) return undefined;
  const edits = (freed as readonly (readonly Edit[])[]).flat();
  return { site, edits: [{ start: call.start, end: call.end, text: take }, ...asked, ...edits] };
}

/** Whether each call makes a token of its own: with an owner that stays, a second call would get the lock of the first. */
function isOwnToken(source: Source, call: CallExpression, value: Node): boolean {
  const made = source.resolve(value);
  const here = source.functionOf(call);
  return here !== undefined && source.functionOf(made) === here && UNIQUE.test(source.textOf(made));
}

function editRelease(
  source: Source,
  site: Site,
  acquire: KeyCommand,
  { call, key, script, value }: KeyCommand,
): readonly Edit[] | undefined {
  if (script !== 'release' || key === undefined || value === undefined) return undefined;
  if (!sameKey(source, acquire.key, key)) return undefined;
  const other = siteOf(source, call.callee);
  if (other?.at !== site.at || other.name !== site.name) return undefined;
  const asked = editUses(source, call, editFreed);
  if (asked === undefined) return undefined;
  const text = `${site.name}.release(${source.textOf(key)}, { owner: ${source.textOf(value)} })`;
  const edits = [{ start: call.start, end: call.end, text }, ...asked];
  if (isSurelyText(source, value)) return edits;
  // Without a token the old code freed nothing.
  const statement = source.parent(source.parent(call));
  if (statement.type !== 'ExpressionStatement') return undefined;
  const around = source.parent(statement);
  if (around.type === 'IfStatement' && source.textOf(around.test) === source.textOf(value))
    return edits;
  const guard = `if (${source.textOf(value)}) `;
  return [{ start: statement.start, end: statement.start, text: guard }, ...edits];
}

/** Whether TypeScript says that a parameter is a text. */
function isSurelyText(source: Source, value: Node): boolean {
  if (value.type !== 'Identifier') return false;
  return source
    .functionsOf(value)
    .flatMap((each) => each.params)
    .some(
      (each) =>
        each.type === 'Identifier' &&
        each.name === value.name &&
        !each.optional &&
        each.typeAnnotation?.typeAnnotation.type === 'TSStringKeyword',
    );
}

/** Edits one place where a result is asked about; undefined if it is used in another way. */
type EditUse = (source: Source, node: Node) => Edit[] | undefined;

/** Edits all places where the result of an awaited call is asked about. */
function editUses(source: Source, call: CallExpression, edit: EditUse): Edit[] | undefined {
  const awaited = source.parent(call);
  if (awaited.type !== 'AwaitExpression') return undefined;
  const holder = source.parent(awaited);
  if (holder.type === 'ExpressionStatement') return edit === editFreed ? [] : undefined;
  if (holder.type !== 'VariableDeclarator') return edit(source, awaited);
  if (holder.id.type !== 'Identifier' || holder.id.typeAnnotation) return undefined;
  const { name } = holder.id;
  const here = source.functionsOf(call).find(isFunction);
  if (here === undefined) return undefined;
  const uses = source
    .within(here)
    .filter((each) => each.type === 'Identifier' && each.name === name && each !== holder.id)
    .map((each) => edit(source, each));
  return uses.some((each) => each === undefined) ? undefined : (uses as Edit[][]).flat();
}

/** `=== 'OK'` asks for a lock that is not null. */
function editTaken(source: Source, node: Node): Edit[] | undefined {
  const { outer, parent } = aroundOf(source, node);
  if (parent.type !== 'BinaryExpression') return asks(parent, outer) ? [] : undefined;
  const right = source.textOf(parent.right);
  if (parent.left !== outer || !/^[!=]==?$/.test(parent.operator)) return undefined;
  if (right === 'null') return [];
  if (!/^['"`]OK['"`]$/.test(right)) return undefined;
  const text = parent.operator.startsWith('!') ? ' === null' : ' !== null';
  return [{ start: outer.end, end: parent.end, text }];
}

/** `=== 1` asks for what is now true. */
function editFreed(source: Source, node: Node): Edit[] | undefined {
  const { outer, parent } = aroundOf(source, node);
  if (parent.type !== 'BinaryExpression') return asks(parent, outer) ? [] : undefined;
  if (parent.left !== outer) return undefined;
  const test = `${parent.operator} ${source.textOf(parent.right)}`;
  if (/^(===? 1|> 0|!==? 0)$/.test(test)) return [{ start: outer.end, end: parent.end, text: '' }];
  if (!/^(!==? 1|===? 0)$/.test(test)) return undefined;
  return [{ start: outer.end, end: parent.end, text: ' === false' }];
}

/** An expression with its parentheses, and what is around it. */
function aroundOf(source: Source, node: Node): { outer: Node; parent: Node } {
  let outer = node;
  for (;;) {
    const parent = source.parent(outer);
    if (parent.type !== 'ParenthesizedExpression') return { outer, parent };
    outer = parent;
  }
}

/** Whether an expression is only asked whether it is truthy. */
function asks(parent: Node, node: Node): boolean {
  if (parent.type === 'UnaryExpression') return parent.operator === '!';
  if (parent.type === 'IfStatement' || parent.type === 'ConditionalExpression')
    return parent.test === node;
  return (
    parent.type === 'CallExpression' &&
    parent.callee.type === 'Identifier' &&
    parent.callee.name === 'Boolean'
  );
}
