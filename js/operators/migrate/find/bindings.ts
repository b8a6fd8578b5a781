/** The imports and exports of a file, as ECMAScript and CommonJS write them. */

import { bare, type Node, nameOf, type Source } from './source.js';

/** A name of another module; `*` is the whole of it. */
export interface Binding {
  readonly specifier: string;
  readonly name: string;
}

/** The exports of a file. */
export interface Exports {
  /** The values that the file has itself, by their exported names. */
  readonly values: Map<string, Node>;
  /** The values of other files that it hands on, by name. */
  readonly others: Map<string, Binding>;
  /** Modules of which it hands on everything. */
  readonly all: string[];
  /** The value of `module.exports`. */
  whole: Node | undefined;
}

const bindings = new WeakMap<Source, ReadonlyMap<string, Binding>>();
const exported = new WeakMap<Source, Exports>();

/** The imports of a file, by the names that it gives them. */
export function bindingsOf(source: Source): ReadonlyMap<string, Binding> {
  const known = bindings.get(source);
  if (known !== undefined) return known;
  const found = new Map<string, Binding>();
  for (const node of source.nodes) noteImport(source, node, found);
  bindings.set(source, found);
  return found;
}

function noteImport(source: Source, node: Node, found: Map<string, Binding>): void {
  if (node.type === 'ImportDeclaration') {
    for (const each of node.specifiers) {
      const name =
        each.type === 'ImportSpecifier'
          ? nameOf(each.imported)
          : each.type === 'ImportDefaultSpecifier'
            ? 'default'
            : '*';
      found.set(each.local.name, { specifier: node.source.value, name });
    }
  }
  if (node.type === 'TSImportEqualsDeclaration') {
    const specifier = specifierOf(node.moduleReference);
    if (specifier !== undefined) found.set(nameOf(node.id), { specifier, name: '*' });
  }
  if (node.type !== 'VariableDeclarator' || node.id.type !== 'ObjectPattern' || !node.init) return;
  const specifier = specifierOf(source.resolve(node.init));
  if (specifier === undefined) return;
  for (const each of node.id.properties)
    if (each.type === 'Property' && each.value.type === 'Identifier')
      found.set(each.value.name, { specifier, name: nameOf(each.key) });
}

/** The module that a statement or a call names: of an import, a `require`, or what is handed on. */
export function specifierOf(node: Node): string | undefined {
  const named =
    node.type === 'ImportDeclaration' ||
    node.type === 'ExportNamedDeclaration' ||
    node.type === 'ExportAllDeclaration' ||
    node.type === 'ImportExpression'
      ? node.source
      : node.type === 'TSExternalModuleReference'
        ? node.expression
        : node.type === 'CallExpression' && nameOf(node.callee) === 'require'
          ? node.arguments[0]
          : undefined;
  return named?.type === 'Literal' && typeof named.value === 'string' ? named.value : undefined;
}

/** The exports of a file. */
export function exportsOf(source: Source): Exports {
  const known = exported.get(source);
  if (known !== undefined) return known;
  const found: Exports = { values: new Map(), others: new Map(), all: [], whole: undefined };
  for (const node of source.nodes) noteExport(node, found);
  exported.set(source, found);
  return found;
}

function noteExport(node: Node, found: Exports): void {
  const { values, others, all } = found;
  if (node.type === 'ExportAllDeclaration') {
    // `export * as name` hands on an object that no node stands for.
    if (node.exported === null) all.push(node.source.value);
  }
  if (node.type === 'ExportDefaultDeclaration') values.set('default', node.declaration);
  if (node.type === 'TSExportAssignment') found.whole = node.expression;
  if (node.type === 'ExportNamedDeclaration') {
    for (const each of node.specifiers) {
      const name = nameOf(each.local);
      if (node.source === null) values.set(nameOf(each.exported), each.local);
      else others.set(nameOf(each.exported), { specifier: node.source.value, name });
    }
    if (node.declaration?.type === 'VariableDeclaration')
      for (const { id } of node.declaration.declarations) values.set(nameOf(id), id);
    if (node.declaration?.type === 'FunctionDeclaration' && node.declaration.id)
      values.set(node.declaration.id.name, node.declaration);
  }
  if (node.type === 'AssignmentExpression') noteAssignment(node.left, node.right, found);
}

/** `module.exports = a`, `module.exports.a = b`, `exports.a = b`. */
function noteAssignment(left: Node, right: Node, found: Exports): void {
  if (left.type !== 'MemberExpression') return;
  const name = nameOf(left.property);
  const { object } = left;
  if (nameOf(object) === 'module' && name === 'exports') found.whole = right;
  const isExports =
    nameOf(object) === 'exports' ||
    (object.type === 'MemberExpression' &&
      nameOf(object.object) === 'module' &&
      nameOf(object.property) === 'exports');
  if (isExports) found.values.set(name, right);
}

/** The value of a property of an object that the code writes down. */
export function propertyOf(object: Node, name: string): Node | undefined {
  const node = bare(object);
  if (node.type !== 'ObjectExpression') return undefined;
  const property = node.properties.find(
    (each) => each.type === 'Property' && nameOf(each.key) === name,
  );
  return property?.type === 'Property' ? property.value : undefined;
}
