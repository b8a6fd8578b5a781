/** A parsed file: its nodes with their parents, and the values that its names stand for. */

import type {
  ArrowFunctionExpression,
  CallExpression,
  Class,
  Function as FunctionNode,
  Node,
  Program,
} from 'oxc-parser' with { 'resolution-mode': 'import' };
import type { Parser } from './parser.js';

export type { CallExpression, Class, Node };

/** A function of any form. */
export type AnyFunction = FunctionNode | ArrowFunctionExpression;

/** The value of an expression, and the file that has it. */
export interface Value {
  readonly source: Source;
  readonly node: Node;
}

/** The other files of the tree, as one file asks about them. */
export interface Outside {
  /** The value of an expression that the file imports; undefined if no file of the tree tells. */
  resolve(source: Source, node: Node): Value | undefined;
  /** Whether a file imports another one, also by others. */
  imports(source: Source, other: Source): boolean;
}

/** Parses a file; undefined if it is no program, such as a template of one. */
export function parse(
  parser: Parser,
  path: string,
  text: string,
  outside?: Outside,
): Source | undefined {
  const lang = /\.tsx$/.test(path) ? 'tsx' : /\.[cm]?ts$/.test(path) ? 'ts' : 'jsx';
  let best: Source | undefined;
  for (const sourceType of ['module', 'commonjs', 'script'] as const) {
    // The types of older versions do not name all kinds of files.
    const options = { lang, sourceType: sourceType as 'module' | 'script' } as const;
    const { program, errors, comments } = parser.parseSync(path, text, options);
    const isProgram = errors.length === 0;
    if (!isProgram && (best !== undefined || program.body.length === 0)) continue;
    const isWhole = isProgram && mayBe(sourceType, path);
    best = new Source(path, text, program, parser.visitorKeys, comments, isWhole, outside);
    if (isProgram) break;
  }
  return best;
}

/** Whether a file may be of a type by its name: only CommonJS may return from the file itself, and TypeScript never. */
function mayBe(sourceType: 'module' | 'commonjs' | 'script', path: string): boolean {
  if (/\.m[jt]s$/.test(path)) return sourceType === 'module';
  return sourceType !== 'commonjs' || /\.c?jsx?$/.test(path);
}

interface Comment {
  readonly value: string;
  readonly start: number;
  readonly end: number;
}

export class Source {
  /** All nodes, each before those inside of it. */
  readonly nodes: Node[] = [];
  readonly #positions = new Map<Node, number>();
  readonly #parents = new Map<Node, Node>();
  readonly #values = new Map<string, { value: Node; owner: Node }[]>();
  readonly #lineStarts: number[] = [0];

  constructor(
    readonly path: string,
    readonly text: string,
    readonly program: Program,
    keys: Readonly<Record<string, string[]>>,
    readonly comments: readonly Comment[],
    /** Without errors, such as a `return` outside of a function: only such a file is changed. */
    readonly isWhole: boolean,
    /** The other files of the tree; undefined if the text stands alone. */
    readonly outside?: Outside,
  ) {
    this.#index(keys);
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1))
      this.#lineStarts.push(at + 1);
    for (const node of this.nodes) this.#note(node);
  }

  /** Without recursion: generated code nests deep. */
  #index(keys: Readonly<Record<string, string[]>>): void {
    const stack: Node[] = [this.program];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      this.#positions.set(node, this.nodes.length);
      this.nodes.push(node);
      const children: Node[] = [];
      for (const key of keys[node.type] ?? []) {
        const child = (node as unknown as Record<string, unknown>)[key];
        for (const each of Array.isArray(child) ? child : [child]) {
          if (isNode(each)) children.push(each);
        }
      }
      for (const child of children.reverse()) {
        this.#parents.set(child, node);
        stack.push(child);
      }
    }
  }

  /** Notes a name that is given a value once. */
  #note(node: Node): void {
    const note = (name: string, value: Node | null | undefined) => {
      if (value == null) return;
      const owner = this.functionOf(node) ?? this.program;
      this.#values.set(name, [...(this.#values.get(name) ?? []), { value, owner }]);
    };
    if (node.type === 'VariableDeclarator' && node.id.type === 'Identifier')
      note(node.id.name, node.init);
    if (node.type === 'FunctionDeclaration' && node.id) note(node.id.name, node);
    if (node.type === 'PropertyDefinition') note(`.${nameOf(node.key)}`, node.value);
    if (node.type === 'Property' && node.kind === 'init') note(`.${nameOf(node.key)}`, node.value);
    if (node.type === 'TSEnumMember') note(`.${nameOf(node.id)}`, node.initializer);
    if (node.type === 'AssignmentExpression' && node.left.type === 'MemberExpression')
      note(`.${nameOf(node.left.property)}`, node.right);
  }

  /** What a node stands in; the program, in itself. */
  parent(node: Node): Node {
    return this.#parents.get(node) ?? this.program;
  }

  /** The nodes around `node`, the innermost first. */
  *around(node: Node): Generator<Node> {
    for (let at = node; at !== this.program; ) {
      at = this.parent(at);
      yield at;
    }
  }

  functionOf(node: Node): AnyFunction | undefined {
    for (const each of this.around(node)) if (isFunction(each)) return each;
    return undefined;
  }

  /** The functions around `node`, the innermost first. */
  functionsOf(node: Node): AnyFunction[] {
    return [...this.around(node)].filter(isFunction);
  }

  classOf(node: Node): Class | undefined {
    for (const each of this.around(node))
      if (each.type === 'ClassDeclaration' || each.type === 'ClassExpression') return each;
    return undefined;
  }

  /** The nodes inside of `node`: they follow it. */
  within(node: Node): Node[] {
    const first = (this.#positions.get(node) as number) + 1;
    let end = first;
    for (let each = this.nodes[end]; each && contains(node, each); each = this.nodes[end]) end++;
    return this.nodes.slice(first, end);
  }

  callsWithin(node: Node): CallExpression[] {
    return this.within(node).filter((each) => each.type === 'CallExpression');
  }

  calls(): CallExpression[] {
    return this.nodes.filter((each) => each.type === 'CallExpression');
  }

  textOf(node: Node): string {
    return this.text.slice(node.start, node.end);
  }

  /** Line and column of an offset, from 1. */
  placeOf(offset: number): { line: number; column: number } {
    let [low, high] = [0, this.#lineStarts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#lineStarts[middle] as number) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (this.#lineStarts[low] as number) + 1 };
  }

  /** The name by which a function is called: its own, or that of what it is the value of. */
  nameOfFunction(node: AnyFunction): string {
    if (node.type !== 'ArrowFunctionExpression' && node.id) return node.id.name;
    const parent = this.parent(node);
    if (parent.type === 'VariableDeclarator' && parent.id.type === 'Identifier')
      return parent.id.name;
    if (parent.type === 'MethodDefinition' || parent.type === 'PropertyDefinition')
      return nameOf(parent.key);
    if (parent.type === 'Property') return nameOf(parent.key);
    if (parent.type === 'AssignmentExpression') {
      const { left } = parent;
      return left.type === 'MemberExpression' ? nameOf(left.property) : nameOf(left);
    }
    return '';
  }

  /** Follows names to the expression that they stand for, as far as the file tells. */
  resolve(given: Node): Node {
    // Names may stand for each other in a circle.
    const seen = new Set<Node>();
    for (let node = bare(given); ; ) {
      seen.add(node);
      const value = this.#valueOf(node);
      const next = value === undefined ? undefined : bare(value);
      if (next === undefined || seen.has(next)) return node;
      node = next;
    }
  }

  #valueOf(node: Node): Node | undefined {
    if (node.type === 'MemberExpression') {
      const values = this.#values.get(`.${nameOf(node.property)}`) ?? [];
      return values.length === 1 ? values[0]?.value : undefined;
    }
    if (node.type !== 'Identifier') return undefined;
    const values = this.#values.get(node.name) ?? [];
    for (const scope of [...this.functionsOf(node), this.program]) {
      const own = values.filter(({ owner }) => owner === scope);
      if (own.length > 0) return own.length === 1 ? own[0]?.value : undefined;
      if (isFunction(scope) && paramsOf(scope).has(node.name)) return undefined;
    }
    return undefined;
  }

  /** The text that an expression stands for; what is not known of it is a NUL. Undefined if it is no text. */
  string(given: Node | undefined): string | undefined {
    if (given === undefined) return undefined;
    const node = this.resolve(given);
    if (node.type === 'Literal') return typeof node.value === 'string' ? node.value : undefined;
    if (node.type === 'Identifier' || node.type === 'MemberExpression') {
      const value = this.outside?.resolve(this, node);
      return value?.source.string(value.node);
    }
    if (node.type === 'TemplateLiteral') {
      return node.quasis
        .map(({ value }, i) => {
          const hole = node.expressions[i];
          const inner = hole === undefined ? '' : (this.#shortString(hole) ?? '\0');
          return `${value.cooked ?? value.raw}${inner}`;
        })
        .join('');
    }
    if (node.type === 'TaggedTemplateExpression') return this.string(node.quasi);
    if (node.type === 'BinaryExpression' && node.operator === '+') {
      const [left, right] = [this.string(node.left), this.string(node.right)];
      if (left === undefined && right === undefined) return undefined;
      return `${left ?? '\0'}${right ?? '\0'}`;
    }
    if (node.type === 'CallExpression' && node.callee.type === 'MemberExpression') {
      const { object, property } = node.callee;
      if (nameOf(property) === 'join' && object.type === 'ArrayExpression')
        return object.elements.map((each) => (each && this.string(each)) ?? '\0').join('\n');
      if (/^(trim|replace|toString|trimStart|trimEnd)/.test(nameOf(property)))
        return this.string(object);
    }
    return undefined;
  }

  #shortString(node: Node): string | undefined {
    const resolved = this.resolve(node);
    return resolved.type === 'Literal' && typeof resolved.value === 'string'
      ? resolved.value
      : undefined;
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

export function isFunction(node: Node): node is AnyFunction {
  return (
    node.type === 'FunctionDeclaration' ||
    node.type === 'FunctionExpression' ||
    node.type === 'ArrowFunctionExpression'
  );
}

export function contains(outer: Node, inner: Node): boolean {
  return outer.start <= inner.start && inner.end <= outer.end;
}

/** Whether a node stands behind another one. */
export function follows(node: Node, other: Node): boolean {
  return node.start >= other.end;
}

/** An expression without what TypeScript, parentheses and `await` put around it. */
export function bare(node: Node): Node {
  let at = node;
  for (;;) {
    if (
      at.type === 'TSAsExpression' ||
      at.type === 'TSNonNullExpression' ||
      at.type === 'TSSatisfiesExpression' ||
      at.type === 'TSTypeAssertion' ||
      at.type === 'ParenthesizedExpression' ||
      at.type === 'ChainExpression'
    ) {
      at = at.expression;
    } else if (at.type === 'AwaitExpression') at = at.argument;
    else return at;
  }
}

/** The name of an identifier or key, or the text of a literal. */
export function nameOf(node: Node): string {
  if (node.type === 'Identifier' || node.type === 'PrivateIdentifier') return node.name;
  if (node.type === 'Literal') return String(node.value);
  return '';
}

/** The name of what a call calls: that of the method, or of the function. */
export function calledName(call: CallExpression): string {
  let callee = bare(call.callee);
  // Compilers write `(0, module.name)(…)`.
  if (callee.type === 'SequenceExpression') callee = bare(callee.expressions.at(-1) ?? callee);
  return callee.type === 'MemberExpression' ? nameOf(callee.property) : nameOf(callee);
}

/** The object whose method is called. */
export function receiverOf(call: CallExpression): Node | undefined {
  const callee = bare(call.callee);
  return callee.type === 'MemberExpression' ? callee.object : undefined;
}

/** The names that the parameters of a function declare. */
export function paramsOf(node: AnyFunction): Set<string> {
  const names = new Set<string>();
  const visit = (pattern: Node): void => {
    if (pattern.type === 'Identifier') names.add(pattern.name);
    else if (pattern.type === 'AssignmentPattern') visit(pattern.left);
    else if (pattern.type === 'RestElement') visit(pattern.argument);
    else if (pattern.type === 'TSParameterProperty') visit(pattern.parameter);
    else if (pattern.type === 'ArrayPattern') {
      for (const each of pattern.elements) if (each) visit(each);
    } else if (pattern.type === 'ObjectPattern') {
      for (const each of pattern.properties) visit(each.type === 'Property' ? each.value : each);
    }
  };
  for (const param of node.params) visit(param);
  return names;
}
