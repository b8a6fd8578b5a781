/** Code after an answer: callbacks of commands and of promises, and the names that they give the answer. */

import type { KeyCommand } from './key-command.js';
import {
  type AnyFunction,
  type CallExpression,
  calledName,
  isFunction,
  type Node,
  nameOf,
  type Source,
} from './source.js';

const CALLBACK =
  /^(cb|callback|done|next|fn|func|handler|resolve|reject|on[A-Z]\w*)$|(Callback|Cb)$/;

/** Methods whose callbacks go on with what the function before them has begun. */
const CONTINUES = /^(then|catch|finally|exec|nextTick|setImmediate)$/;

/** Whether an argument is a function, also by a name that says so. */
export function isCallback(source: Source, argument: Node): boolean {
  const node = source.resolve(argument);
  if (isFunction(node)) return true;
  if (node.type === 'CallExpression') return calledName(node) === 'bind';
  return CALLBACK.test(node.type === 'MemberExpression' ? nameOf(node.property) : nameOf(node));
}

/** The function that gets the answer of a call, and which of its parameters is the answer. */
export interface Answer {
  readonly callback: AnyFunction;
  readonly param: Node | undefined;
}

/** `set(…, (error, reply) => …)` or `set(…).then((reply) => …)`; undefined for another form. */
export function answerOf(source: Source, call: CallExpression): Answer | undefined {
  const callback = call.arguments.find((each) => isFunction(each));
  if (callback !== undefined && isFunction(callback))
    return { callback, param: callback.params[1] };
  const method = source.parent(call);
  const chained = source.parent(method);
  if (method.type !== 'MemberExpression' || chained.type !== 'CallExpression') return undefined;
  const [next] = chained.arguments;
  if (nameOf(method.property) !== 'then' || next === undefined || !isFunction(next))
    return undefined;
  return { callback: next, param: next.params[0] };
}

/** The name that the answer of a call gets. */
export function resultName(source: Source, call: CallExpression): string {
  const param = answerOf(source, call)?.param;
  if (param !== undefined) return source.textOf(param);
  for (const each of source.around(call)) {
    if (each.type === 'VariableDeclarator') return source.textOf(each.id);
    if (each.type === 'AssignmentExpression') return source.textOf(each.left);
    if (each.type.endsWith('Statement') || isFunction(each)) return '';
  }
  return '';
}

/** The functions in whose course a node runs, the innermost first: callbacks, and the function that they go on with. */
export function routinesOf(
  source: Source,
  node: Node,
  all: readonly KeyCommand[],
): readonly AnyFunction[] {
  const functions = source.functionsOf(node);
  const last = functions.findIndex((each) => !isContinuation(source, each, all));
  return last < 0 ? functions : functions.slice(0, last + 1);
}

/** The function in whose course a node runs; the program if there is none. */
export function routineOf(source: Source, node: Node, all: readonly KeyCommand[]): Node {
  const functions = source.functionsOf(node);
  return functions.find((each) => !isContinuation(source, each, all)) ?? source.program;
}

function isContinuation(source: Source, node: AnyFunction, all: readonly KeyCommand[]): boolean {
  const parent = source.parent(node);
  if (parent.type === 'NewExpression') return source.textOf(parent.callee) === 'Promise';
  if (parent.type !== 'CallExpression') return false;
  return CONTINUES.test(calledName(parent)) || all.some(({ call }) => call === parent);
}
