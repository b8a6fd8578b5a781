/** Finds locks that code takes by commands of its own. */

import { basename } from 'node:path';
import { type KeyCommand, readCommand } from './commands.js';
import { isInCatch, isInFinally } from './releases.js';
import { isText, type ReadScript, type ScriptKind, Scripts } from './scripts.js';
import {
  type AnyFunction,
  bare,
  type CallExpression,
  calledName,
  contains,
  type Node,
  nameOf,
  type Source,
} from './source.js';
import { saysLock, saysOther, saysTake, wordsOf } from './words.js';

/** A lock with the commands that belong to it. */
export interface HandLock {
  /** How it is taken; undefined if the file has only the script of its release. */
  readonly acquire: KeyCommand | undefined;
  /** Where it is reported. */
  readonly node: Node;
  readonly form: 'set' | 'setnx' | 'script' | 'check' | 'blind' | 'incr';
  readonly releases: readonly KeyCommand[];
}

/** All that a file does to keys. */
export interface Commands {
  readonly all: readonly KeyCommand[];
  readonly scripts: readonly { node: Node; kind: ScriptKind }[];
}

/** Calls that run a script, or make a method of it. */
const SENDS = /^(eval|evalsha|evalSha|defineCommand|defineScript|scriptLoad|script|invokeScript)$/i;

/** The first word of a function that takes a lock. */
const TAKING = /^(acquire|lock|obtain|take|get|try)$/;

/** The score from which code counts as a lock: one clear sign, or two vague ones. */
const ENOUGH = 4;

/** Reads the commands and scripts of a file. */
export function readCommands(source: Source, readFile: ReadScript): Commands {
  const scripts = new Scripts(source, readFile);
  const all = source.calls().flatMap((call) => {
    const command = readCommand(source, call, scripts) ?? readOwnCommand(call, scripts);
    return command === undefined ? [] : [command];
  });
  return { all, scripts: scripts.found };
}

/** The call of a script that `defineCommand` or the option `scripts` has made a method. */
function readOwnCommand(call: CallExpression, scripts: Scripts): KeyCommand | undefined {
  const script = scripts.methods.get(calledName(call));
  if (script === undefined || bare(call.callee).type !== 'MemberExpression') return undefined;
  const [first] = call.arguments;
  const isCount = first?.type === 'Literal' && typeof first.value === 'number';
  return { verb: 'script', call, key: isCount ? call.arguments[1] : first, script };
}

/** Finds the locks of a file. */
export function findByHand(source: Source, { all, scripts }: Commands): HandLock[] {
  const releases = all.filter(({ verb, script }) => verb === 'del' || script === 'release');
  const found: HandLock[] = [];
  const add = (acquire: KeyCommand, form: HandLock['form'], enough: number) => {
    const own = releasesOf(source, acquire, releases);
    // A key that is looked at, set and left to expire may lock an account.
    if ((form === 'check' || form === 'blind') && own.length === 0) return;
    if (score(source, acquire, own, scripts) < enough) return;
    found.push({ acquire, node: acquire.call, form, releases: own });
  };
  for (const command of all) {
    const { verb, nx, script } = command;
    if (verb === 'set' && nx === true) add(command, 'set', ENOUGH);
    else if (verb === 'setnx') add(command, 'setnx', ENOUGH);
    else if (script === 'acquire') add(command, 'script', ENOUGH);
    else if (verb === 'incr' && isTakenByCount(source, command)) add(command, 'incr', ENOUGH + 1);
    else if (
      verb === 'set' &&
      /redis|valkey/i.test(source.text) &&
      isCheckedBefore(source, command, all)
    )
      add(command, 'check', ENOUGH + 1);
    else if (verb === 'set' && isBlind(source, command, all)) add(command, 'blind', ENOUGH + 1);
  }
  const lone = scripts.find(({ node }) => isUsed(source, node));
  if (found.length === 0 && lone !== undefined)
    found.push({ acquire: undefined, node: lone.node, form: 'script', releases: [] });
  return found;
}

/** Whether the file sends a script of a lock: one that it only hands on may be part of a queue or of a library. */
function isUsed(source: Source, node: Node): boolean {
  const names = [...source.around(node)].map((each) =>
    each.type === 'VariableDeclarator' || each.type === 'Property'
      ? nameOf(each.type === 'Property' ? each.key : each.id)
      : '',
  );
  const says = `${names.join(' ')} ${source.string(node) ?? ''} ${basename(source.path)}`;
  const sent = source.calls().some((call) => SENDS.test(calledName(call)));
  return sent && saysLock(says) && !saysOther(says);
}

/** Texts that name a key: two commands that share one use the same key. */
export function keysOf(source: Source, key: Node | undefined): Set<string> {
  const keys = new Set<string>();
  if (key === undefined) return keys;
  const flat = (node: Node) =>
    source
      .textOf(node)
      .replace(/\s+/g, '')
      .replace(/\bthis\._?/g, '');
  const first = key.type === 'ArrayExpression' && key.elements[0] ? key.elements[0] : key;
  const resolved = source.resolve(first);
  for (const node of [bare(first), resolved]) {
    keys.add(flat(node));
    if (node.type !== 'CallExpression') continue;
    // A function makes the same kind of key from other arguments.
    const fixed = node.arguments.filter((each) => each.type === 'Literal').map(flat);
    if (fixed.length > 0 || saysLock(flat(node.callee))) keys.add(`${flat(node.callee)}(${fixed})`);
  }
  const text = source.string(first);
  if (text !== undefined && /[a-z]{2}/i.test(text)) keys.add(text);
  return keys;
}

export function sameKey(source: Source, a: Node | undefined, b: Node | undefined): boolean {
  const keys = keysOf(source, a);
  return [...keysOf(source, b)].some((key) => keys.has(key));
}

/** The releases of a lock: those of the same function, if it has any. */
function releasesOf(
  source: Source,
  acquire: KeyCommand,
  releases: readonly KeyCommand[],
): readonly KeyCommand[] {
  const own = releases.filter((release) => belongs(source, acquire, release));
  const here = source.functionOf(acquire.call);
  const inside = own.filter(({ call }) => here !== undefined && contains(here, call));
  return inside.length > 0 ? inside : own;
}

/** Whether a release frees what a command takes. */
function belongs(source: Source, acquire: KeyCommand, release: KeyCommand): boolean {
  if (sameKey(source, acquire.key, release.key)) return true;
  if (release.script !== 'release' && !speaksOfRelease(source, release)) return false;
  if (
    release.verb === 'del' &&
    release.key !== undefined &&
    !saysLock(source.textOf(release.key))
  ) {
    return (
      source.classOf(acquire.call) === source.classOf(release.call) &&
      hasSameParameter(source, acquire, release)
    );
  }
  return source.classOf(acquire.call) === source.classOf(release.call);
}

function hasSameParameter(source: Source, a: KeyCommand, b: KeyCommand): boolean {
  return saysLock(namesAround(source, a.call)) && saysLock(namesAround(source, b.call));
}

function speaksOfRelease(source: Source, { call }: KeyCommand): boolean {
  return wordsOf(namesAround(source, call)).some((word) =>
    /^(release|unlock|free|relinquish)/.test(word),
  );
}

/** The names of the functions around a node, also of what they are methods of: `Mutex.prototype.take = function () {}`. */
function namesAround(source: Source, node: Node): string {
  const names = source.functionsOf(node).map((each) => {
    const parent = source.parent(each);
    return parent?.type === 'AssignmentExpression'
      ? source.textOf(parent.left)
      : source.nameOfFunction(each);
  });
  return names.join(' ');
}

/** How much speaks for a lock. */
function score(
  source: Source,
  acquire: KeyCommand,
  releases: readonly KeyCommand[],
  scripts: Commands['scripts'],
): number {
  let sum = ofKey(source, acquire.key) + ofNames(source, acquire.call);
  if (acquire.value && saysLock(source.textOf(acquire.value))) sum += 2;
  if (
    acquire.value &&
    /u+id|token|owner|identifier|random|nanoid|instance|worker|\bpid\b/i.test(
      source.textOf(acquire.value),
    )
  )
    sum += 1;
  if (saysTake(resultName(source, acquire.call))) sum += 2;
  if (acquire.script !== undefined && saysLock(source.textOf(acquire.call).slice(0, 80))) sum += 4;
  const outer = source.functionsOf(acquire.call).find((each) => source.nameOfFunction(each) !== '');
  if (outer !== undefined && saysLock(wordsIn(source, outer))) sum += 2;
  const best = releases.map((release) => ofRelease(source, acquire, release));
  return sum + Math.max(0, ...best, scripts.some(({ kind }) => kind !== 'acquire') ? 3 : 0);
}

function ofKey(source: Source, key: Node | undefined): number {
  if (key === undefined) return 0;
  const resolved = source.resolve(key);
  const text = [
    source.textOf(key),
    source.string(key) ?? '',
    source.textOf(resolved).slice(0, 200),
  ].join(' ');
  return (saysLock(text) ? 5 : 0) - (saysOther(text) ? 4 : 0);
}

function ofNames(source: Source, call: CallExpression): number {
  let sum = 0;
  const names = namesAround(source, call);
  if (saysLock(names)) sum += 4;
  else if (saysTake(names)) sum += 3;
  if (saysOther(names)) sum -= 3;
  const { id } = source.classOf(call) ?? {};
  if (id && saysLock(id.name)) sum += 3;
  if (id && saysOther(id.name)) sum -= 2;
  const file = basename(source.path);
  if (saysLock(file)) sum += 2;
  if (saysOther(file)) sum -= 2;
  if (saysLock(source.textOf(call.callee))) sum += 2;
  return sum;
}

/** The name that the result of a call gets. */
function resultName(source: Source, call: CallExpression): string {
  for (const each of source.around(call)) {
    if (each.type === 'VariableDeclarator') return source.textOf(each.id);
    if (each.type === 'AssignmentExpression') return source.textOf(each.left);
    if (each.type.endsWith('Statement') || each.type.endsWith('Function')) return '';
  }
  return '';
}

/** The texts and comments in a function. */
function wordsIn(source: Source, node: AnyFunction): string {
  const texts = source
    .within(node)
    .map((each) => (isText(each) ? (source.string(each) ?? '') : ''));
  const comments = source.comments.filter(
    ({ start, end }) => node.start <= start && end <= node.end,
  );
  return [...texts, ...comments.map(({ value }) => value)].join(' ');
}

function ofRelease(source: Source, acquire: KeyCommand, release: KeyCommand): number {
  if (release.script === 'release') return 4;
  const here = source.functionOf(acquire.call) ?? source.program;
  if (contains(here, release.call)) {
    if (isInFinally(source, release.call)) return 4;
    return isInCatch(source, release.call) ? 0 : 3;
  }
  return speaksOfRelease(source, release) ? 4 : 1;
}

/** `incr(key) === 1`, also by a name. */
function isTakenByCount(source: Source, { call }: KeyCommand): boolean {
  const name = resultName(source, call);
  const here = source.functionOf(call) ?? source.program;
  return source.within(here).some((each) => {
    if (each.type !== 'BinaryExpression' || !/^([=!]==?|>)$/.test(each.operator)) return false;
    const isOne = each.right.type === 'Literal' && each.right.value === 1;
    return (
      isOne && (contains(each.left, call) || (name !== '' && source.textOf(each.left) === name))
    );
  });
}

/** Whether the same function looks first whether the key exists, and sets it only then. */
function isCheckedBefore(source: Source, set: KeyCommand, all: readonly KeyCommand[]): boolean {
  if (set.key === undefined || !saysLock(source.textOf(set.key) + (source.string(set.key) ?? '')))
    return false;
  const here = source.functionOf(set.call);
  if (here === undefined) return false;
  const others = all.filter(
    ({ call, key }) => contains(here, call) && sameKey(source, key, set.key),
  );
  if (others.some(({ nx, verb }) => nx === true || verb === 'getset')) return false;
  return others.some(({ verb, call }) => {
    if ((verb !== 'get' && verb !== 'exists') || call.end > set.call.start) return false;
    return decides(source, here, call, set.call);
  });
}

/** Whether a function that takes a lock by its name sets the key without a condition. */
function isBlind(
  source: Source,
  { call, key, expiry }: KeyCommand,
  all: readonly KeyCommand[],
): boolean {
  const here = source.functionOf(call);
  if (here === undefined || expiry === undefined || !/redis|valkey/i.test(source.text))
    return false;
  const words = wordsOf(source.nameOfFunction(here));
  if (
    !TAKING.test(words[0] ?? '') ||
    !saysLock(`${namesAround(source, call)} ${source.classOf(call)?.id?.name ?? ''}`)
  )
    return false;
  const others = all.filter((each) => contains(here, each.call) && each.call !== call);
  return !others.some((other) => sameKey(source, other.key, key) || other.nx === true);
}

/** Whether an `if` between two calls asks only whether the first has found something. */
function decides(
  source: Source,
  here: AnyFunction,
  look: CallExpression,
  set: CallExpression,
): boolean {
  const name = resultName(source, look);
  return source.within(here).some((each) => {
    if (each.type !== 'IfStatement' || each.test.start > set.start) return false;
    const test = bare(each.test);
    const asks = contains(test, look) || (name !== '' && source.textOf(test).includes(name));
    const compares = source
      .within(each.test)
      .concat(test)
      .some(
        (part) => part.type === 'BinaryExpression' && !isPlain(part.right) && !isPlain(part.left),
      );
    return asks && !compares;
  });
}

function isPlain(node: Node): boolean {
  return node.type === 'Literal' || (node.type === 'Identifier' && node.name === 'undefined');
}
