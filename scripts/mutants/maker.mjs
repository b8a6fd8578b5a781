// Makes plausible mistakes of a TypeScript source: one change each, at a place that its syntax tree names. Texts stay as
// they are, since most of them are messages.

import { parseSync } from 'oxc-parser';

const COMPARISONS = { '<': '<=', '<=': '<', '>': '>=', '>=': '>', '===': '!==', '!==': '===' };
const ARITHMETIC = { '+': '-', '-': '+', '*': '/', '/': '*', '%': '*' };
const LOGICAL = { '&&': '||', '||': '&&' };

/** All mistakes of a source: `{ kind, start, end, becomes }`, by their places. */
export function mistakesOf(name, source) {
  const found = [];
  const add = (kind, { start, end }, becomes) => found.push({ kind, start, end, becomes });
  const text = ({ start, end }) => source.slice(start, end);
  const { program } = parseSync(name, source);
  walk(program, (node) => {
    MAKERS[node.type]?.(node, { add, text });
  });
  return found.sort((a, b) => a.start - b.start);
}

const MAKERS = {
  BinaryExpression(node, { add, text }) {
    const { left, right, operator } = node;
    const becomes = COMPARISONS[operator] ?? (isText(node) ? undefined : ARITHMETIC[operator]);
    if (becomes === undefined) return;
    const kind = operator in COMPARISONS ? 'comparison' : 'arithmetic';
    add(kind, node, `${text(left)} ${becomes} ${text(right)}`);
  },
  LogicalExpression(node, { add, text }) {
    const { left, right, operator } = node;
    // Two of different kinds side by side would be no syntax.
    const other = LOGICAL[operator];
    if (other !== undefined) add('boolean', node, `((${text(left)}) ${other} (${text(right)}))`);
    else add('boolean', node, `(${text(left)})`);
  },
  UnaryExpression(node, { add, text }) {
    if (node.operator === '!') add('boolean', node, `(${text(node.argument)})`);
  },
  Literal(node, { add }) {
    if (typeof node.value === 'boolean') add('constant', node, String(!node.value));
    if (typeof node.value === 'number') add('constant', node, String(node.value + 1));
  },
  AwaitExpression(node, { add, text }) {
    add('removed await', node, `(${text(node.argument)})`);
  },
  ExpressionStatement(node, { add }) {
    const { expression } = node;
    const inner = expression.type === 'AwaitExpression' ? expression.argument : expression;
    const isSuper = inner.callee?.type === 'Super';
    if (inner.type === 'CallExpression' && !isSuper) add('removed call', node, ';');
  },
  IfStatement({ test }, { add, text }) {
    add('swapped branch', test, `!(${text(test)})`);
  },
  ConditionalExpression(node, { add, text }) {
    const { test, consequent, alternate } = node;
    add('swapped branch', node, `${text(test)} ? ${text(alternate)} : ${text(consequent)}`);
  },
};

/** Whether a sum is one of texts. */
function isText({ left, right }) {
  return [left, right].some(
    (each) =>
      each.type === 'TemplateLiteral' ||
      typeof each.value === 'string' ||
      (each.type === 'BinaryExpression' && isText(each)),
  );
}

/** Visits all that runs: types do not. */
function walk(node, visit) {
  if (Array.isArray(node)) for (const each of node) walk(each, visit);
  if (typeof node?.type !== 'string') return;
  const isType = /^TS/.test(node.type) && !('expression' in node);
  if (isType || node.declare === true || node.type === 'ImportDeclaration') return;
  visit(node);
  for (const [key, value] of Object.entries(node)) {
    const isOfType = ['typeAnnotation', 'returnType', 'typeParameters', 'typeArguments'].includes(
      key,
    );
    if (!isOfType && typeof value === 'object' && value !== null) walk(value, visit);
  }
}
