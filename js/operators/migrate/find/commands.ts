/** Commands to Redis, as the clients of Node write them. */

import { basename } from 'node:path';
import type { ScriptKind, Scripts } from './scripts.js';
import {
  bare,
  type CallExpression,
  calledName,
  isFunction,
  type Node,
  nameOf,
  receiverOf,
  type Source,
} from './source.js';
import { saysLock, wordsOf } from './words.js';

/** What a command does to a key. */
export type Verb =
  | 'set'
  | 'setnx'
  | 'incr'
  | 'getset'
  | 'get'
  | 'exists'
  | 'del'
  | 'expire'
  | 'watch'
  | 'script';

/** A command that a call sends. */
export interface KeyCommand {
  readonly verb: Verb;
  readonly call: CallExpression;
  readonly key: Node | undefined;
  readonly value?: Node | undefined;
  /** It writes only if there is no key. */
  readonly nx?: boolean;
  /** The expiry that it sets; `unknown` if it may set one. */
  readonly expiry?: Expiry | 'unknown' | undefined;
  readonly script?: ScriptKind | undefined;
}

/** An expiry as the code gives it. */
export interface Expiry {
  readonly unit: 'ms' | 's';
  readonly amount: Node;
}

const VERBS: Readonly<Record<string, Verb>> = {
  set: 'set',
  setnx: 'setnx',
  setifnotexists: 'setnx',
  setifnotexist: 'setnx',
  setifabsent: 'setnx',
  hsetnx: 'setnx',
  getset: 'getset',
  get: 'get',
  exists: 'exists',
  del: 'del',
  unlink: 'del',
  delete: 'del',
  remove: 'del',
  expire: 'expire',
  pexpire: 'expire',
  expireat: 'expire',
  pexpireat: 'expire',
  incr: 'incr',
  setex: 'set',
  psetex: 'set',
  watch: 'watch',
};
const GENERIC = /^(call|(send|custom|execute|invoke|run|raw)?_?command)$/i;
const RUN_SCRIPT =
  /^(eval|evalsha|eval_ro|evalsha_ro|fcall|invokescript|executescript|runscript|execscript|evalscript|runlua|evallua)$/;

/** Methods that other objects have, too, such as `Map`. */
const COMMON = new Set(['get', 'set', 'exists', 'delete', 'remove']);
/** Calls that only tell of a command: assertions, mocks and logs. */
const TELLS =
  /^(to[A-Z]|(was|been|not)?calledWith|withArgs|(not)?(deep|strict)*equal|expect|log|error|warn|info|debug|trace)/i;
const REDIS = /redis|valkey|client|cache|conn|store|\bkv\b|multi|pipeline|\bdb\b|tx\b/i;

/** Reads the command of a call; undefined if it sends none that matters to locks. */
export function readCommand(
  source: Source,
  call: CallExpression,
  scripts: Scripts,
): KeyCommand | undefined {
  if (TELLS.test(calledName(call))) return undefined;
  const name = verbName(calledName(call));
  const args = argumentsOf(source, call);
  if (RUN_SCRIPT.test(name)) return readScript(source, call, args, scripts);
  const verb = VERBS[name];
  if (verb === undefined)
    return readGeneric(source, call, args, scripts) ?? readNamed(source, call, args);
  const command = readVerb(source, call, verb, name, args);
  if (command?.nx === true || !COMMON.has(name)) return command;
  return speaksRedis(source, call) ? command : undefined;
}

/** Whether the receiver of a method that other objects have, too, is a client. */
function speaksRedis(source: Source, call: CallExpression): boolean {
  const receiver = receiverOf(call);
  if (receiver === undefined)
    return call.callee.type === 'Identifier' && call.callee.name.endsWith('Async');
  if (source.resolve(receiver).type === 'NewExpression' && isCollection(source, receiver))
    return false;
  return REDIS.test(source.textOf(receiver)) || source.parent(call)?.type === 'AwaitExpression';
}

function isCollection(source: Source, receiver: Node): boolean {
  return /^new (Weak)?(Map|Set)\b/.test(source.textOf(source.resolve(receiver)));
}

/** A name such as `setAsync`, `redisSet` or `SETNX` without its additions. */
function verbName(name: string): string {
  return name
    .replace(/(Async|Buffer|Promise|\$|P)$/, '')
    .replace(/^(async|redis)_?(?=[A-Z])/, '')
    .replace(/^p(?=[A-Z])/, '')
    .toLowerCase();
}

/** The arguments, or the items of the one array that stands for them. */
function argumentsOf(source: Source, call: CallExpression): Node[] {
  const [first] = call.arguments;
  if (first === undefined) return [];
  const array = source.resolve(first);
  if (array.type === 'ArrayExpression' && call.arguments.length <= 2 && array.elements.length > 1)
    return array.elements.filter((each) => each !== null);
  return call.arguments.flatMap((each) => {
    const spread = each.type === 'SpreadElement' ? source.resolve(each.argument) : undefined;
    if (spread?.type === 'ArrayExpression') return spread.elements.filter((item) => item !== null);
    return [bare(each)];
  });
}

/** A command by its words: `call('SET', …)`, `sendCommand(['SET', …])`, `redis(['SET', …])`. */
function readGeneric(
  source: Source,
  call: CallExpression,
  args: Node[],
  scripts: Scripts,
): KeyCommand | undefined {
  const [first, second] = args;
  if (first === undefined || args.length < 2) return undefined;
  const word = source.string(first) ?? '';
  const isGeneric = GENERIC.test(calledName(call));
  if (!(isGeneric ? /^[a-z]+$/i : /^(SET|SETNX|GET|DEL|EVAL|EVALSHA|P?EXPIRE)$/).test(word))
    return undefined;
  const name = word.toLowerCase();
  const inner = second === undefined ? undefined : source.resolve(second);
  const rest =
    inner?.type === 'ArrayExpression'
      ? inner.elements.filter((each) => each !== null)
      : args.slice(1);
  if (RUN_SCRIPT.test(name)) return readScript(source, call, rest, scripts);
  const verb = VERBS[name];
  return verb === undefined ? undefined : readVerb(source, call, verb, name, rest);
}

/** A function of another name that is called with the words of SET, such as a promisified one. */
function readNamed(source: Source, call: CallExpression, args: Node[]): KeyCommand | undefined {
  if (!/set|command|cmd|exec|send|redis/i.test(source.textOf(call.callee))) return undefined;
  const flags = args.slice(2).map((each) => source.string(each)?.toUpperCase());
  if (!flags.includes('NX') || !flags.some((flag) => flag === 'EX' || flag === 'PX'))
    return undefined;
  return readVerb(source, call, 'set', 'set', args);
}

function readVerb(
  source: Source,
  call: CallExpression,
  verb: Verb,
  name: string,
  args: Node[],
): KeyCommand | undefined {
  const [key, second, ...rest] = args;
  if (key === undefined || (isFunction(key) && verb !== 'watch')) return undefined;
  if (name === 'setex' || name === 'psetex') {
    return {
      verb,
      call,
      key,
      value: rest[0],
      expiry: { unit: name === 'setex' ? 's' : 'ms', amount: second as Node },
    };
  }
  if (name === 'hsetnx') return { verb, call, key, value: rest[0], nx: true };
  if (verb === 'setnx') {
    const third = rest.find((each) => !isFunction(each));
    return { verb, call, key, value: second, nx: true, expiry: third && 'unknown' };
  }
  if (verb === 'set') return { verb, call, key, value: second, ...readFlags(source, rest) };
  return { verb, call, key, value: second };
}

/** What follows key and value of SET: words in any order, or an object. */
function readFlags(source: Source, rest: readonly Node[]): Pick<KeyCommand, 'nx' | 'expiry'> {
  let nx = false;
  let expiry: KeyCommand['expiry'];
  const others: Node[] = [];
  for (const [i, each] of rest.entries()) {
    const word = source.string(each)?.toUpperCase();
    const next = rest[i + 1];
    const resolved = source.resolve(each);
    if (word === 'NX') nx = true;
    else if ((word === 'EX' || word === 'PX') && next !== undefined)
      expiry = { unit: word === 'EX' ? 's' : 'ms', amount: next };
    else if (word === 'EXAT' || word === 'PXAT') expiry = 'unknown';
    else if (each.type === 'SpreadElement') expiry ??= 'unknown';
    else if (resolved.type === 'ObjectExpression') {
      const read = readOptions(source, resolved);
      nx ||= read.nx === true;
      expiry ??= read.expiry;
    } else if (!isFunction(each)) others.push(each);
  }
  // SET takes no other words: what is neither a word nor an amount may be a whole expiry, as of a wrapper.
  if (expiry === undefined && others.length > 0) expiry = 'unknown';
  return { nx, expiry };
}

function readOptions(source: Source, options: Node): Pick<KeyCommand, 'nx' | 'expiry'> {
  let nx = false;
  let expiry: KeyCommand['expiry'];
  if (options.type !== 'ObjectExpression') return {};
  for (const property of options.properties) {
    if (property.type === 'SpreadElement') {
      const read = readOptions(source, source.resolve(property.argument));
      nx ||= read.nx === true;
      expiry ??= read.expiry ?? 'unknown';
      continue;
    }
    const name = nameOf(property.key).toLowerCase();
    const value = source.resolve(property.value);
    if (name === 'nx') nx = !(value.type === 'Literal' && value.value === false);
    if (name === 'condition' || name === 'mode' || name === 'setmode')
      nx ||= source.string(value)?.toUpperCase() === 'NX' || /\bNX\b/.test(source.textOf(value));
    if (name === 'conditionalset')
      nx ||= /onlyIfDoesNotExist/i.test(source.string(value) ?? source.textOf(value));
    if (name === 'ex') expiry = { unit: 's', amount: property.value };
    if (name === 'px') expiry = { unit: 'ms', amount: property.value };
    if (/^(exat|pxat|ttl)$/.test(name)) expiry = 'unknown';
    if (name === 'expiration' || name === 'expiry') expiry = readExpiration(source, value);
  }
  return { nx, expiry };
}

/** `{ type: 'PX', value }` of node-redis 5, and `{ type: TimeUnit.Milliseconds, count }` of GLIDE. */
function readExpiration(source: Source, node: Node): Expiry | 'unknown' {
  if (node.type !== 'ObjectExpression') return 'unknown';
  const found: Record<string, Node> = {};
  for (const property of node.properties)
    if (property.type === 'Property') found[nameOf(property.key)] = property.value;
  const amount = found['value'] ?? found['count'];
  const type = found['type'];
  if (amount === undefined || type === undefined) return 'unknown';
  const unit = /^(PX|.*Milliseconds)$/i.test(source.string(type) ?? source.textOf(type))
    ? 'ms'
    : 's';
  return { unit, amount };
}

function readScript(
  source: Source,
  call: CallExpression,
  args: Node[],
  scripts: Scripts,
): KeyCommand | undefined {
  const [script, second, third] = args;
  if (script === undefined) return undefined;
  const kind = scripts.kindOf(script) ?? kindByName(source.textOf(script), placeOf(source, call));
  if (kind === undefined || kind === 'other') return undefined;
  return { verb: 'script', call, key: keyOfScript(source, second, third), script: kind };
}

/** The names of the functions and of the file around a call. */
function placeOf(source: Source, call: CallExpression): string {
  const names = source.functionsOf(call).map((each) => source.nameOfFunction(each));
  return [...names, source.classOf(call)?.id?.name ?? '', basename(source.path)].join(' ');
}

/** What a script that is not in this file does, by its name, and by the names around its use. */
function kindByName(name: string, place: string): ScriptKind | undefined {
  const words = wordsOf(name);
  const has = (...any: string[]) => any.some((word) => words.includes(word));
  if (!saysLock(`${name} ${place}`)) return undefined;
  if (has('unlock', 'release', 'del', 'delete')) return 'release';
  if (has('extend', 'renew', 'refresh', 'expire', 'prolong', 'keepalive')) return 'extend';
  return has('acquire', 'lock') ? 'acquire' : undefined;
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
  if (options.type === 'ObjectExpression') {
    for (const property of options.properties) {
      if (property.type !== 'Property' || nameOf(property.key) !== 'keys') continue;
      const keys = source.resolve(property.value);
      return keys.type === 'ArrayExpression' ? (keys.elements[0] ?? undefined) : undefined;
    }
    return undefined;
  }
  return options.type === 'Literal' && typeof options.value === 'number' ? third : undefined;
}

/** Whether a call is part of the same MULTI as another: in one chain of methods, or on one transaction. */
export function sameTransaction(source: Source, a: CallExpression, b: CallExpression): boolean {
  const [one, two] = [rootOf(source, a), rootOf(source, b)];
  if (!one.isMulti || !two.isMulti) return false;
  return one.text === two.text;
}

/** Whether a call only adds to a MULTI or a pipeline, whose `exec` has the result. */
export function isQueued(source: Source, call: CallExpression): boolean {
  return rootOf(source, call).isMulti;
}

/** The object at the beginning of a chain of calls. */
function rootOf(source: Source, call: CallExpression): { text: string; isMulti: boolean } {
  let isMulti = false;
  let at: Node = call;
  for (;;) {
    const receiver = at.type === 'CallExpression' ? receiverOf(at) : undefined;
    if (receiver === undefined) break;
    if (at.type === 'CallExpression' && /^(multi|pipeline|batch|transaction)$/.test(calledName(at)))
      isMulti = true;
    at = bare(receiver);
  }
  const resolved = source.resolve(at);
  if (resolved.type === 'CallExpression' && /^(multi|pipeline|batch)$/.test(calledName(resolved)))
    isMulti = true;
  return { text: source.textOf(at), isMulti };
}
