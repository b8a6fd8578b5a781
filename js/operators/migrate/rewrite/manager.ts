/** Where the new code has its manager: beside the client that the old code used, so it leads to the same keys. */

import { isClient, isMade, isTypedClient, makerOf, standsFor } from '../find/clients.js';
import { bare, type Class, type Node, nameOf, type Source } from '../find/source.js';
import type { Edit } from './edits.js';
import { indentOf, quoteOf, semicolonOf } from './lines.js';

/** A manager that the new code makes. */
export interface Site {
  /** The declaration or class that makes it. */
  readonly at: Node;
  /** How locks name it. */
  readonly name: 'locks' | 'this.locks';
  readonly edits: readonly Edit[];
  /** Whether it is declared with its type. */
  readonly isTyped: boolean;
}

/** The manager beside the client whose method a command calls; undefined if it is not sure what the client is. */
export function siteOf(source: Source, callee: Node): Site | undefined {
  const method = bare(callee);
  if (method.type !== 'MemberExpression') return undefined;
  const client = bare(method.object);
  if (client.type === 'Identifier')
    return siteInModule(source, client) ?? siteOfImport(source, client, client.name);
  if (client.type !== 'MemberExpression') return undefined;
  if (client.object.type === 'Identifier') return siteOfImport(source, client, client.object.name);
  if (client.object.type !== 'ThisExpression') return undefined;
  const owner = source.classOf(callee);
  return owner === undefined ? undefined : siteInClass(source, owner, client);
}

/** A client that is declared at the top of the file. */
function siteInModule(source: Source, client: Node): Site | undefined {
  const made = source.resolve(client);
  const declaration = [...source.around(made)].find((each) => each.type === 'VariableDeclaration');
  if (declaration === undefined || !isClient(source, made)) return undefined;
  const isOwn = isMade(source, made);
  if (!isOwn && made.type === 'CallExpression') {
    if (changesDatabase(standsFor(source, made.callee).source)) return undefined;
  }
  const parent = source.parent(declaration);
  const at = parent.type === 'ExportNamedDeclaration' ? parent : declaration;
  if (source.parent(at) !== source.program) return undefined;
  const server = (isOwn ? urlOf(source, made) : undefined) ?? source.textOf(client);
  const text = `\nconst locks = ${making(source, server)}`;
  return { at, name: 'locks', edits: [{ start: at.end, end: at.end, text }], isTyped: false };
}

/** A client that another file of the tree exports, which this one names at its top. */
function siteOfImport(source: Source, client: Node, name: string): Site | undefined {
  const at = source.program.body.find((each) => declares(each, name));
  const value = source.outside?.resolve(source, client);
  if (at === undefined || value === undefined || !isClient(value.source, value.node))
    return undefined;
  // Of files that import each other one runs before the client is made.
  if (source.outside?.imports(value.source, source) === true) return undefined;
  if (changesDatabase(value.source)) return undefined;
  const last = source.program.body.filter((each) => each.type === 'ImportDeclaration').at(-1);
  const { end } = at.type === 'ImportDeclaration' ? (last ?? at) : at;
  const text = `\n${last === undefined ? '' : '\n'}const locks = ${making(source, source.textOf(client))}`;
  return { at, name: 'locks', edits: [{ start: end, end, text }], isTyped: false };
}

/** Whether a statement imports a name, or takes it from a `require`. */
function declares(statement: Node, name: string): boolean {
  if (statement.type === 'ImportDeclaration')
    return statement.specifiers.some(({ local }) => local.name === name);
  if (statement.type !== 'VariableDeclaration' || statement.kind !== 'const') return false;
  return statement.declarations.some(
    ({ id }) =>
      nameOf(id) === name ||
      (id.type === 'ObjectPattern' &&
        id.properties.some((each) => each.type === 'Property' && nameOf(each.value) === name)),
  );
}

/** Whether a client may be sent to another database than its options name. */
export function changesDatabase({ text }: Source): boolean {
  return /\.select\(/i.test(text);
}

function making(source: Source, server: string): string {
  const quote = quoteOf(source);
  return `connectLazily(${server}, { prefix: ${quote}${quote} })${semicolonOf(source)}`;
}

/** A client that a class has as a field, or as a parameter of its constructor. */
function siteInClass(source: Source, at: Class, client: Node): Site | undefined {
  const members = at.body.body;
  const name = client.type === 'MemberExpression' ? nameOf(client.property) : '';
  if (members.some((each) => 'key' in each && each.key && nameOf(each.key) === 'locks'))
    return undefined;
  const made = `this.locks = ${making(source, source.textOf(client))}`;
  for (const member of members) {
    if (member.type === 'PropertyDefinition' && nameOf(member.key) === name && member.value) {
      if (!isMade(source, bare(member.value))) return undefined;
      const text = `\n${indentOf(source, member.start)}${made.slice('this.'.length)}`;
      return site(at, [{ start: member.end, end: member.end, text }], false);
    }
    if (member.type !== 'MethodDefinition' || member.kind !== 'constructor') continue;
    const edit = editConstructor(source, member.value, name, made);
    if (edit === undefined) return undefined;
    return site(at, [...fieldOf(source, member), edit], isTyped(source));
  }
  return undefined;
}

function site(at: Node, edits: readonly Edit[], isTyped: boolean): Site {
  return { at, name: 'this.locks', edits, isTyped };
}

function isTyped({ path }: Source): boolean {
  return /\.[cm]?tsx?$/.test(path);
}

/** TypeScript wants a field declared. */
function fieldOf(source: Source, { start }: Node): Edit[] {
  if (!isTyped(source)) return [];
  const text = `private readonly locks: LockManager${semicolonOf(source)}\n\n${indentOf(source, start)}`;
  return [{ start, end: start, text }];
}

/** Puts a statement into a constructor, where its object has the client. */
function editConstructor(source: Source, node: Node, name: string, made: string): Edit | undefined {
  if (node.type !== 'FunctionExpression' || !node.body) return undefined;
  const { params, body } = node;
  for (const statement of body.body) {
    const set = statement.type === 'ExpressionStatement' ? statement.expression : undefined;
    if (set?.type !== 'AssignmentExpression' || source.textOf(set.left) !== `this.${name}`)
      continue;
    const value = source.resolve(set.right);
    if (!isMade(source, value) && !isTypedClient(source, params, nameOf(bare(set.right))))
      return undefined;
    return after(source, statement, made);
  }
  const isParameter = params.some(
    (each) => each.type === 'TSParameterProperty' && isTypedClient(source, [each.parameter], name),
  );
  if (!isParameter) return undefined;
  const last = body.body.find((each) => /^super\(/.test(source.textOf(each)));
  if (last !== undefined) return after(source, last, made);
  const indent = indentOf(source, node.start);
  const text = `\n${indent}  ${made}`;
  const start = body.start + 1;
  if (body.body.length > 0) return { start, end: start, text };
  const isEmpty = source.textOf(body).slice(1, -1).trim() === '';
  return isEmpty ? { start, end: body.end - 1, text: `${text}\n${indent}` } : undefined;
}

function after(source: Source, { start, end }: Node, made: string): Edit {
  return { start: end, end, text: `\n${indentOf(source, start)}${made}` };
}

/** The URL of a client, if its declaration names no more than that. */
function urlOf(source: Source, made: Node): string | undefined {
  const [argument, ...more] = makerOf(made)?.arguments ?? [];
  if (argument === undefined || more.length > 0) return undefined;
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

/** The edit that imports what the new code names. */
export function importOf(source: Source, isTyped: boolean): Edit {
  const imports = source.program.body.filter((each) => each.type === 'ImportDeclaration');
  const last = imports.at(-1);
  const quote = quoteOf(source);
  const end = semicolonOf(source);
  if (last !== undefined) {
    const names = isTyped ? 'connectLazily, type LockManager' : 'connectLazily';
    const text = `\nimport { ${names} } from ${quote}holdfast${quote}${end}`;
    return { start: last.end, end: last.end, text };
  }
  const start =
    source.program.body.find((each) => !('directive' in each && each.directive))?.start ?? 0;
  const text = `const { connectLazily } = require(${quote}holdfast${quote})${end}\n`;
  return { start, end: start, text };
}
