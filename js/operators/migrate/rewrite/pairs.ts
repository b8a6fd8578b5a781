/**
 * Rewrites a lock in its most common form: SET NX, leave if it is held, try the work, and release in the finally block of
 * the same function.
 */

import type { HandLock } from '../find/key-command.js';
import { sameKey } from '../find/keys.js';
import { bare, type Node, type Source } from '../find/source.js';
import type { Edit } from './edits.js';
import { ttlOf } from './ttl.js';

/** A lock that can be rewritten for sure, by its parts. */
interface Pair {
  /** The statement that takes it. */
  readonly take: Node;
  /** The test that asks whether it was taken. */
  readonly test: Node;
  readonly release: Node;
  readonly key: string;
  readonly ttl: string;
  /** The statement that declares the client, and its server. */
  readonly client: Node;
  readonly server: string;
  /** Statements that only the old code needs. */
  readonly value: Node | undefined;
}

/** The names that the new code declares. */
const OWN_NAMES = ['connectLazily', 'locks', 'lock'];

/** The edits that rewrite all locks of a file; undefined if one of them is of another form. */
export function editPairs(source: Source, locks: readonly HandLock[]): Edit[] | undefined {
  const pairs = locks.map((lock) => pairOf(source, lock));
  const [first] = pairs;
  if (first === undefined || pairs.some((each) => each === undefined)) return undefined;
  const names = new Set(source.nodes.map((node) => (node.type === 'Identifier' ? node.name : '')));
  if (OWN_NAMES.some((name) => names.has(name))) return undefined;
  const all = pairs as Pair[];
  if (all.some(({ client }) => client !== first.client)) return undefined;
  return [
    importOf(source),
    managerOf(source, first),
    ...all.flatMap((pair) => editPair(source, pair)),
  ];
}

function pairOf(source: Source, { acquire, form, releases }: HandLock): Pair | undefined {
  const [release] = releases;
  if (
    form !== 'set' ||
    acquire?.key === undefined ||
    releases.length !== 1 ||
    release === undefined
  )
    return undefined;
  const { expiry, key, call } = acquire;
  // A client may have changed its database.
  if (!sameKey(source, key, release.key) || /\.select\(/i.test(source.text)) return undefined;
  if (expiry === undefined || expiry === 'unknown' || releases.length > 1) return undefined;
  const taken = takenBy(source, call);
  if (taken === undefined) return undefined;
  const block = source.parent(taken.leave);
  if (block?.type !== 'BlockStatement') return undefined;
  const next = block.body.find((each) => each.start >= taken.leave.end);
  const freed = source.parent(release.call);
  const statement = freed === undefined ? undefined : source.parent(freed);
  if (
    next?.type !== 'TryStatement' ||
    freed?.type !== 'AwaitExpression' ||
    statement?.type !== 'ExpressionStatement'
  )
    return undefined;
  if (next.finalizer === null || source.parent(statement) !== next.finalizer) return undefined;
  const client = clientOf(source, call.callee);
  if (client === undefined) return undefined;
  return {
    take: taken.statement,
    test: taken.leave,
    release: freed,
    key: source.textOf(key),
    ttl: ttlOf(source, expiry),
    ...client,
    value: onlyValue(source, acquire.value, [call, release.call]),
  };
}

/** `if ((await set(…)) !== 'OK') leave`, or `const taken = await set(…)` and the same by its name. */
function takenBy(source: Source, call: Node): { statement: Node; leave: Node } | undefined {
  const awaited = source.parent(call);
  if (awaited?.type !== 'AwaitExpression') return undefined;
  const holder = source.parent(awaited);
  if (holder?.type === 'VariableDeclarator' && holder.id.type === 'Identifier') {
    const { name } = holder.id;
    const statement = source.parent(holder);
    const block = statement === undefined ? undefined : source.parent(statement);
    if (statement?.type !== 'VariableDeclaration' || statement.declarations.length !== 1)
      return undefined;
    if (block?.type !== 'BlockStatement' || holder.id.typeAnnotation) return undefined;
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

/** The declaration of a client at the top of the file, and its server, if the declaration names no more than that. */
function clientOf(source: Source, callee: Node): { client: Node; server: string } | undefined {
  const method = bare(callee);
  if (method.type !== 'MemberExpression' || method.object.type !== 'Identifier') return undefined;
  const made = source.resolve(method.object);
  const declaration = [...source.around(made)].find((each) => each.type === 'VariableDeclaration');
  if (declaration === undefined || source.parent(declaration) !== source.program) return undefined;
  if (made.type !== 'NewExpression' && made.type !== 'CallExpression') return undefined;
  // `await createClient(…).connect()` and its like.
  let maker: Node = made;
  while (maker.type === 'CallExpression' && maker.callee.type === 'MemberExpression')
    maker = bare(maker.callee.object);
  if (maker.type !== 'NewExpression' && maker.type !== 'CallExpression') return undefined;
  if (
    !/^(Redis|IORedis|Valkey|createClient)$/.test(source.textOf(maker.callee)) ||
    maker.arguments.length > 1
  )
    return undefined;
  const server = serverOf(source, maker.arguments[0]);
  return server === undefined ? undefined : { client: declaration, server };
}

function serverOf(source: Source, argument: Node | undefined): string | undefined {
  if (argument === undefined) return "'redis://127.0.0.1:6379'";
  const given = argument.type === 'ObjectExpression' ? onlyUrl(argument) : argument;
  if (given === undefined) return undefined;
  const text = source.textOf(given);
  const isUrl =
    given.type === 'Literal'
      ? /^['"]rediss?:/.test(text)
      : /^process\.env(\.\w+|\[['"]\w+['"]\])!?$/.test(text);
  return isUrl ? text : undefined;
}

function onlyUrl(options: Node): Node | undefined {
  if (options.type !== 'ObjectExpression' || options.properties.length !== 1) return undefined;
  const [property] = options.properties;
  const isUrl =
    property?.type === 'Property' &&
    property.key.type === 'Identifier' &&
    property.key.name === 'url';
  return isUrl ? property.value : undefined;
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
  const declaration = declarator === undefined ? undefined : source.parent(declarator);
  if (declaration?.type !== 'VariableDeclaration' || declaration.declarations.length !== 1)
    return undefined;
  const here = source.functionOf(declaration);
  const uses = source.nodes.filter(
    (each) =>
      each.type === 'Identifier' && each.name === value.name && source.functionOf(each) === here,
  );
  return here !== undefined && uses.length === calls.length + 1 ? declaration : undefined;
}

function editPair(source: Source, pair: Pair): Edit[] {
  const { take, test, release, key, ttl, value } = pair;
  const end = semicolonOf(source);
  const indent = indentOf(source, take.start);
  const taking = `const lock = await locks.tryAcquire(${key}, { ttl: ${ttl} })${end}`;
  const condition = test.type === 'IfStatement' ? test.test : test;
  const asking: Edit = { start: condition.start, end: condition.end, text: 'lock === null' };
  const edits: Edit[] = [
    ...(take === test
      ? [{ start: take.start, end: take.start, text: `${taking}\n${indent}` }, asking]
      : [{ start: take.start, end: take.end, text: taking }, asking]),
    { start: release.start, end: release.end, text: 'await lock.release()' },
  ];
  return value === undefined ? edits : [...edits, wholeLine(source, value)];
}

/** The removal of a statement with its line, if it stands alone on it. */
export function wholeLine(source: Source, { start, end }: Node): Edit {
  const { text } = source;
  const lineStart = text.lastIndexOf('\n', start - 1) + 1;
  const rest = /^[ \t]*\r?\n/.exec(text.slice(end))?.[0];
  if (text.slice(lineStart, start).trim() !== '') return { start, end, text: '' };
  if (rest !== undefined) return { start: lineStart, end: end + rest.length, text: '' };
  // A file whose last line has no end keeps it so.
  const before = /\r?\n$/.exec(text.slice(0, lineStart))?.[0] ?? '';
  return text.slice(end).trim() === ''
    ? { start: lineStart - before.length, end, text: '' }
    : { start, end, text: '' };
}

function indentOf(source: Source, offset: number): string {
  const lineStart = source.text.lastIndexOf('\n', offset - 1) + 1;
  return /^[ \t]*/.exec(source.text.slice(lineStart, offset))?.[0] ?? '';
}

function importOf(source: Source): Edit {
  const imports = source.program.body.filter((each) => each.type === 'ImportDeclaration');
  const last = imports.at(-1);
  const quote = /["']/.exec(source.text)?.[0] ?? "'";
  const end = semicolonOf(source);
  if (last !== undefined)
    return {
      start: last.end,
      end: last.end,
      text: `\nimport { connectLazily } from ${quote}holdfast${quote}${end}`,
    };
  const start =
    source.program.body.find((each) => !('directive' in each && each.directive))?.start ?? 0;
  return {
    start,
    end: start,
    text: `const { connectLazily } = require(${quote}holdfast${quote})${end}\n`,
  };
}

/** A semicolon if the file has them. */
function semicolonOf({ program, text }: Source): string {
  return program.body.some((each) => text[each.end - 1] === ';') ? ';' : '';
}

function managerOf(source: Source, { client, server }: Pair): Edit {
  const end = semicolonOf(source);
  const quote = /["']/.exec(source.text)?.[0] ?? "'";
  return {
    start: client.end,
    end: client.end,
    text: `\nconst locks = connectLazily(${server}, { prefix: ${quote}${quote} })${end}`,
  };
}
