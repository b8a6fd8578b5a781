/** Calls that run a script. */

import { basename } from 'node:path';
import type { KeyCommand } from './key-command.js';
import { expiryOfScript, kindByName, type Script, type Scripts } from './scripts.js';
import { bare, type CallExpression, calledName, type Node, nameOf, type Source } from './source.js';

/** The options of node-redis and GLIDE. */
const KEYS = /^keys$/;
const ARGUMENTS = /^(arguments|args)$/;

export function readScript(
  source: Source,
  call: CallExpression,
  args: Node[],
  scripts: Scripts,
): KeyCommand | undefined {
  const [script, second, third] = args;
  if (script === undefined) return undefined;
  const found = scripts.scriptOf(script);
  const kind = found?.kind ?? kindByName(source.textOf(script), placeOf(source, call));
  if (kind === undefined || kind === 'other') return undefined;
  const rest = args.slice(1);
  return {
    verb: 'script',
    call,
    key: keyOfScript(source, second, third),
    value: argumentAt(source, rest, 1),
    script: kind,
    expiry: found && kind === 'acquire' ? readExpiry(source, found, rest) : undefined,
  };
}

/** The call of a script that `defineCommand` or the option `scripts` has made a method. */
export function readOwnCommand(
  source: Source,
  call: CallExpression,
  scripts: Scripts,
): KeyCommand | undefined {
  const found = scripts.methods.get(calledName(call));
  if (found === undefined || bare(call.callee).type !== 'MemberExpression') return undefined;
  const isCounted = isCount(call.arguments[0]);
  const args = isCounted ? call.arguments : [undefined, ...call.arguments];
  return {
    verb: 'script',
    call,
    key: args[1],
    value: args[2],
    script: found.kind,
    expiry: found.kind === 'acquire' ? readExpiry(source, found, args, 1) : undefined,
  };
}

/** The expiry that a script sets; `rest` are the arguments after the script. */
function readExpiry(
  source: Source,
  { text }: Script,
  rest: readonly (Node | undefined)[],
  keys = keyCount(rest[0]),
): KeyCommand['expiry'] {
  const expiry = expiryOfScript(text);
  if (expiry === undefined) return undefined;
  const { unit, amount } = expiry;
  if (typeof amount === 'number') return { unit, amount };
  const found = argumentAt(source, rest, amount.argument, keys);
  return found === undefined ? 'unknown' : { unit, amount: found };
}

/** The argument that a script gets as `ARGV[place]`. */
function argumentAt(
  source: Source,
  rest: readonly (Node | undefined)[],
  place: number,
  keys = keyCount(rest[0]),
): Node | undefined {
  const options = rest[0] === undefined ? undefined : source.resolve(rest[0]);
  const listed =
    options?.type === 'ObjectExpression' ? listIn(source, options, ARGUMENTS) : undefined;
  return listed?.[place - 1] ?? rest[keys + place];
}

/** How many keys a call names before its arguments, as it says itself. */
function keyCount(node: Node | undefined): number {
  return node?.type === 'Literal' ? Number(node.value) : Number.NaN;
}

function isCount(node: Node | undefined): boolean {
  return node?.type === 'Literal' && typeof node.value === 'number';
}

/** The list that a property of options has. */
function listIn(
  source: Source,
  options: Node,
  name: RegExp,
): readonly (Node | undefined)[] | undefined {
  if (options.type !== 'ObjectExpression') return undefined;
  for (const property of options.properties) {
    if (property.type !== 'Property' || !name.test(nameOf(property.key))) continue;
    const list = source.resolve(property.value);
    return list.type === 'ArrayExpression'
      ? list.elements.map((each) => each ?? undefined)
      : undefined;
  }
  return undefined;
}

/** The names of the functions and of the file around a call. */
function placeOf(source: Source, call: CallExpression): string {
  const names = source.functionsOf(call).map((each) => source.nameOfFunction(each));
  return [...names, source.classOf(call)?.id?.name ?? '', basename(source.path)].join(' ');
}

/** The first key: after the number of keys (ioredis, node-redis 3), or in an object or array. */
function keyOfScript(
  source: Source,
  second: Node | undefined,
  third: Node | undefined,
): Node | undefined {
  if (second === undefined) return undefined;
  const options = source.resolve(second);
  if (options.type === 'ArrayExpression') return options.elements[0] ?? undefined;
  if (options.type === 'ObjectExpression') return listIn(source, options, KEYS)?.[0];
  return isCount(options) ? third : undefined;
}
