/** Where the new code has its manager: beside the client that the old code used, so it leads to the same keys. */

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

/** The packages whose clients `connect` reads. */
const PACKAGES = /^(ioredis|redis|@redis\/client|iovalkey)$/;
const MAKERS = /^(Redis|IORedis|Valkey|createClient|Cluster|createCluster)$/;
const TYPES = /^(Redis|IORedis|Valkey|Cluster|RedisClientType|RedisClusterType)$/;

/** The manager beside the client whose method a command calls; undefined if it is not sure what the client is. */
export function siteOf(source: Source, callee: Node): Site | undefined {
  const method = bare(callee);
  if (method.type !== 'MemberExpression') return undefined;
  const client = bare(method.object);
  if (client.type === 'Identifier') return siteInModule(source, client);
  if (client.type !== 'MemberExpression' || client.object.type !== 'ThisExpression')
    return undefined;
  const owner = source.classOf(callee);
  return owner === undefined ? undefined : siteInClass(source, owner, client);
}

/** A client that is declared at the top of the file. */
function siteInModule(source: Source, client: Node): Site | undefined {
  const made = source.resolve(client);
  const declaration = [...source.around(made)].find((each) => each.type === 'VariableDeclaration');
  if (declaration === undefined || !isMade(source, made)) return undefined;
  const parent = source.parent(declaration);
  const at = parent?.type === 'ExportNamedDeclaration' ? parent : declaration;
  if (source.parent(at) !== source.program) return undefined;
  const server = urlOf(source, made) ?? source.textOf(client);
  const text = `\nconst locks = ${making(source, server)}`;
  return { at, name: 'locks', edits: [{ start: at.end, end: at.end, text }], isTyped: false };
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

/** Whether one of the parameters has a name and the type of a client. */
function isTypedClient(source: Source, params: readonly Node[], name: string): boolean {
  return params.some((each) => {
    if (each.type !== 'Identifier' || each.name !== name) return false;
    const type = each.typeAnnotation?.typeAnnotation;
    return (
      type?.type === 'TSTypeReference' &&
      type.typeName.type === 'Identifier' &&
      isImported(source, type.typeName.name, TYPES)
    );
  });
}

/** Whether an expression makes a client: `new Redis(…)`, `createClient(…)`, `await createClient(…).connect()`. */
function isMade(source: Source, made: Node): boolean {
  const maker = makerOf(made);
  if (maker === undefined || maker.arguments.length > 2) return false;
  const callee = bare(maker.callee);
  const [object, property] =
    callee.type === 'MemberExpression' ? [callee.object, nameOf(callee.property)] : [callee, ''];
  const name = nameOf(bare(object));
  if (property !== '') return MAKERS.test(property) && isImported(source, name, /./);
  return isImported(source, name, MAKERS);
}

type Maker = Extract<Node, { type: 'NewExpression' | 'CallExpression' }>;

function makerOf(made: Node): Maker | undefined {
  let maker: Node = made;
  while (maker.type === 'CallExpression' && bare(maker.callee).type === 'MemberExpression') {
    const callee = bare(maker.callee);
    const inner = callee.type === 'MemberExpression' ? bare(callee.object) : maker;
    if (inner.type !== 'NewExpression' && inner.type !== 'CallExpression') break;
    maker = inner;
  }
  return maker.type === 'NewExpression' || maker.type === 'CallExpression' ? maker : undefined;
}

/** Whether a name comes from a package of clients, under a name that the package gives to one. */
function isImported(source: Source, name: string, known: RegExp): boolean {
  return source.program.body.some((each) => {
    if (each.type === 'ImportDeclaration')
      return (
        PACKAGES.test(each.source.value) &&
        each.specifiers.some(
          (one) =>
            one.local.name === name &&
            (one.type !== 'ImportSpecifier' || known.test(nameOf(one.imported))),
        )
      );
    if (each.type !== 'VariableDeclaration') return false;
    return each.declarations.some(({ id, init }) => {
      const from =
        init === null ? undefined : /^require\(['"`]([^'"`]+)['"`]\)/.exec(source.textOf(init));
      if (!PACKAGES.test(from?.[1] ?? '')) return false;
      if (id.type === 'Identifier') return id.name === name;
      return (
        id.type === 'ObjectPattern' &&
        id.properties.some(
          (one) =>
            one.type === 'Property' && nameOf(one.value) === name && known.test(nameOf(one.key)),
        )
      );
    });
  });
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
