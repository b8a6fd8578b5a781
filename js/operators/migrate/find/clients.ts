/** Which expressions are clients of Redis. */

import {
  type AnyFunction,
  bare,
  type Class,
  isFunction,
  type Node,
  nameOf,
  type Source,
  type Value,
} from './source.js';

/** The packages whose clients `connect` reads. */
const PACKAGES = /^(ioredis|redis|@redis\/client|iovalkey)$/;
const MAKERS = /^(Redis|IORedis|Valkey|createClient|Cluster|createCluster)$/;
const TYPES = /^(Redis|IORedis|Valkey|Cluster|RedisClientType|RedisClusterType)$/;

/** Whether an expression is a client for sure: made here, by its type, or made in another file of the tree. */
export function isClient(source: Source, given: Node, above = new Set<Node>()): boolean {
  const node = source.resolve(given);
  // Functions may return what each other returns.
  if (above.has(node)) return false;
  const path = new Set([...above, node]);
  if (isMade(source, node) || isTyped(source, node)) return true;
  const is = (each: Node) => isClient(source, each, path);
  // `globals.redis ?? new Redis()`, `(globals.redis = new Redis())`
  if (node.type === 'LogicalExpression') return is(node.left) || is(node.right);
  if (node.type === 'AssignmentExpression') return is(node.right);
  if (node.type === 'CallExpression') {
    const maker = standsFor(source, node.callee);
    return isFunction(maker.node) && returnsClient(maker.source, maker.node, path);
  }
  const value = source.outside?.resolve(source, node);
  return value !== undefined && isClient(value.source, value.node, path);
}

/** The value of an expression, from here or from another file of the tree. */
export function standsFor(source: Source, node: Node): Value {
  return source.outside?.resolve(source, node) ?? { source, node: source.resolve(node) };
}

/** Whether all that a function returns are clients. */
function returnsClient(source: Source, maker: AnyFunction, path: Set<Node>): boolean {
  const statements = source
    .within(maker)
    .filter((each) => each.type === 'ReturnStatement' && source.functionOf(each) === maker);
  const returned =
    maker.body?.type === 'BlockStatement'
      ? statements.map((each) => (each.type === 'ReturnStatement' ? each.argument : null))
      : [maker.body];
  return (
    returned.length > 0 && returned.every((each) => each !== null && isClient(source, each, path))
  );
}

/** Whether an expression makes a client: `new Redis(…)`, `createClient(…)`, `await createClient(…).connect()`. */
export function isMade(source: Source, made: Node): boolean {
  const maker = makerOf(made);
  if (maker === undefined) return false;
  const callee = bare(maker.callee);
  const [object, property] =
    callee.type === 'MemberExpression' ? [callee.object, nameOf(callee.property)] : [callee, ''];
  const name = nameOf(bare(object));
  if (property !== '') return MAKERS.test(property) && isImported(source, name, /./);
  return isImported(source, name, MAKERS);
}

type Maker = Extract<Node, { type: 'NewExpression' | 'CallExpression' }>;

/** The call that makes a client, in a chain of calls on it. */
export function makerOf(made: Node): Maker | undefined {
  let maker: Node = made;
  while (maker.type === 'CallExpression' && bare(maker.callee).type === 'MemberExpression') {
    const callee = bare(maker.callee);
    const inner = callee.type === 'MemberExpression' ? bare(callee.object) : maker;
    if (inner.type !== 'NewExpression' && inner.type !== 'CallExpression') break;
    maker = inner;
  }
  return maker.type === 'NewExpression' || maker.type === 'CallExpression' ? maker : undefined;
}

/** Whether one of the parameters has a name and the type of a client. */
export function isTypedClient(source: Source, params: readonly Node[], name: string): boolean {
  return params.some(
    (each) => each.type === 'Identifier' && each.name === name && hasType(source, each),
  );
}

/** Whether TypeScript says that a name or a field is a client. */
function isTyped(source: Source, node: Node): boolean {
  if (node.type === 'Identifier')
    return source.functionsOf(node).some(({ params }) => isTypedClient(source, params, node.name));
  const owner = source.classOf(node);
  return (
    node.type === 'MemberExpression' &&
    node.object.type === 'ThisExpression' &&
    owner !== undefined &&
    isTypedField(source, owner, nameOf(node.property))
  );
}

function isTypedField(source: Source, owner: Class, name: string): boolean {
  return owner.body.body.some((each) => {
    if (each.type === 'PropertyDefinition')
      return nameOf(each.key) === name && hasType(source, each);
    if (each.type !== 'MethodDefinition') return false;
    const fields = each.value.params.flatMap((param) =>
      param.type === 'TSParameterProperty' ? [param.parameter] : [],
    );
    return isTypedClient(source, fields, name);
  });
}

/** Whether a declaration has the type of a client. */
function hasType(source: Source, node: Node): boolean {
  const { typeAnnotation } = node as { typeAnnotation?: { typeAnnotation?: Node } | null };
  const type = typeAnnotation?.typeAnnotation;
  return (
    type?.type === 'TSTypeReference' &&
    type.typeName.type === 'Identifier' &&
    isImported(source, type.typeName.name, TYPES)
  );
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
