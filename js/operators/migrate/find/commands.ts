/** Commands to Redis, as the clients of Node write them. */

import { isCallback } from './callbacks.js';
import { isClient } from './clients.js';
import { readFlags } from './flags.js';
import type { Expiry, KeyCommand, Verb } from './key-command.js';
import { readScript } from './script-calls.js';
import type { Scripts } from './scripts.js';
import {
  bare,
  type CallExpression,
  calledName,
  type Node,
  receiverOf,
  type Source,
} from './source.js';

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

const EXPIRE: Readonly<Record<string, Omit<Expiry, 'amount'>>> = {
  expire: { unit: 's' },
  pexpire: { unit: 'ms' },
  expireat: { unit: 's', isTime: true },
  pexpireat: { unit: 'ms', isTime: true },
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
  if (isCollection(source, receiver)) return false;
  return (
    REDIS.test(source.textOf(receiver)) ||
    source.parent(call).type === 'AwaitExpression' ||
    isClient(source, receiver)
  );
}

function isCollection(source: Source, receiver: Node): boolean {
  return /^new (Weak)?(Map|Set)\b/.test(source.textOf(source.resolve(receiver)));
}

/** A name such as `setAsync`, `redisSet` or `SETNX` without its additions. */
function verbName(name: string): string {
  const verb = name
    .replace(/(Async|Buffer|Promise|\$|P)$/, '')
    .replace(/^(async|redis)_?(?=[A-Z])/, '')
    .replace(/^p(?=[A-Z])/, '')
    .toLowerCase();
  // A function of the service, such as `kvSetNX`.
  return /[a-z]setnx$/.test(verb) && !/^[hm]setnx$/.test(verb) ? 'setnx' : verb;
}

/** The arguments, or the items of the one array that stands for them. */
function argumentsOf(source: Source, call: CallExpression): Node[] {
  const [first] = call.arguments;
  if (first === undefined) return [];
  const array = source.resolve(first);
  if (array.type === 'ArrayExpression') return itemsOf(array);
  return call.arguments.flatMap((each) => {
    const spread = each.type === 'SpreadElement' ? source.resolve(each.argument) : undefined;
    return spread?.type === 'ArrayExpression' ? itemsOf(spread) : [bare(each)];
  });
}

function itemsOf({ elements }: Extract<Node, { type: 'ArrayExpression' }>): Node[] {
  return elements.filter((each) => each !== null);
}

/** A command by its words: `call('SET', …)`, `sendCommand(['SET', …])`, `redis(['SET', …])`. */
function readGeneric(
  source: Source,
  call: CallExpression,
  args: Node[],
  scripts: Scripts,
): KeyCommand | undefined {
  const [first, second] = args;
  const word = source.string(first) ?? '';
  const isGeneric = GENERIC.test(calledName(call));
  if (!(isGeneric ? /^[a-z]+$/i : /^(SET|SETNX|GET|DEL|EVAL|EVALSHA|P?EXPIRE)$/).test(word))
    return undefined;
  const name = word.toLowerCase();
  const inner = second === undefined ? undefined : source.resolve(second);
  const rest = inner?.type === 'ArrayExpression' ? itemsOf(inner) : args.slice(1);
  if (RUN_SCRIPT.test(name)) return readScript(source, call, rest, scripts);
  const verb = VERBS[name];
  return verb === undefined ? undefined : readVerb(source, call, verb, name, rest);
}

/** A function of another name that is called with the words of SET, such as a promisified one. */
function readNamed(source: Source, call: CallExpression, args: Node[]): KeyCommand | undefined {
  if (!/set|command|cmd|exec|send|redis/i.test(source.textOf(call.callee))) return undefined;
  const flags = args.map((each) => source.string(each)?.toUpperCase());
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
  if (key === undefined) return undefined;
  if (name === 'setex' || name === 'psetex') {
    return {
      verb,
      call,
      key,
      value: rest[0],
      expiry: { unit: name === 'setex' ? 's' : 'ms', amount: second as Node },
    };
  }
  if (verb === 'setnx') {
    // A hash has a field before the value.
    const [value, ...others] = args.slice(name === 'hsetnx' ? 2 : 1);
    const third = others.find((each) => !isCallback(source, each));
    return { verb, call, key, value, nx: true, expiry: third && 'unknown' };
  }
  if (verb === 'expire' && second !== undefined)
    return { verb, call, key, expiry: { ...EXPIRE[name], amount: second } as Expiry };
  if (verb === 'set') return { verb, call, key, value: second, ...readFlags(source, rest) };
  return { verb, call, key, value: second };
}
