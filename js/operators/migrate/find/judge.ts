/** What is wrong with a lock that code takes by hand. A rule that is not sure is silent. */

import type { RuleName } from '../rules.js';
import { type Commands, type HandLock, sameKey } from './by-hand.js';
import { isQueued, type KeyCommand, sameTransaction } from './commands.js';
import { awaitedBetween, isInFinally, isSwallowed } from './releases.js';
import {
  type AnyFunction,
  bare,
  type CallExpression,
  calledName,
  contains,
  isFunction,
  type Node,
  type Source,
} from './source.js';
import { wordsOf } from './words.js';

/** A rule that a node breaks. */
export interface Fault {
  readonly rule: RuleName;
  readonly node: Node;
}

const PAUSES = /sleep|delay|wait|timeout|pause|backoff|interval|blpop|subscribe|once/i;
const RENEWS = /^(extend|renew|refresh|heartbeat|prolong|keepalive|keepalive|reacquire|touch)/;
const WRITES =
  /^(save|update|updateOne|updateMany|insert|insertOne|insertMany|insertInto|upsert|findOneAndUpdate|findByIdAndUpdate|bulkWrite|executeRaw|\$executeRaw|writeFile)$/;

/** Judges a lock by all that its file does. */
export function judge(source: Source, lock: HandLock, commands: Commands): Fault[] {
  const { acquire } = lock;
  if (acquire === undefined) return [];
  return [
    ...judgeExpiry(source, lock, acquire, commands),
    ...judgeRelease(source, lock, commands),
    ...judgeValue(source, lock, acquire),
    ...judgeResult(source, lock, acquire),
    ...judgeFinally(source, lock, acquire),
    ...judgeRenewal(source, lock, acquire, commands),
    ...judgeRetry(source, acquire),
    ...judgeWrites(source, lock, acquire),
  ];
}

function judgeExpiry(
  source: Source,
  { form }: HandLock,
  acquire: KeyCommand,
  { all }: Commands,
): Fault[] {
  const faults: Fault[] =
    form === 'check'
      ? [{ rule: 'check-then-set', node: acquire.call }]
      : form === 'blind'
        ? [{ rule: 'set-without-condition', node: acquire.call }]
        : [];
  if (form === 'script' || acquire.expiry !== undefined) return faults;
  const later = all.filter(
    ({ verb, key }) => verb === 'expire' && sameKey(source, key, acquire.key),
  );
  const together = later.find(({ call }) => sameTransaction(source, call, acquire.call));
  if (together !== undefined)
    return [...faults, { rule: 'expiry-set-by-losers', node: together.call }];
  const here = source.functionOf(acquire.call) ?? source.program;
  const near = later.find(({ call }) => contains(here, call)) ?? later[0];
  if (near !== undefined) return [...faults, { rule: 'expiry-in-second-command', node: near.call }];
  if (
    acquire.value !== undefined &&
    isClock(source, acquire.value) &&
    all.some(({ verb }) => verb === 'getset')
  )
    return [...faults, { rule: 'expiry-by-clock', node: acquire.call }];
  // An expiry of some other key may be that of this one, by another name.
  if (all.some(({ verb }) => verb === 'expire')) return faults;
  return [...faults, { rule: 'no-expiry', node: acquire.call }];
}

function isClock(source: Source, value: Node): boolean {
  const text = source.textOf(source.resolve(value));
  return /Date\.now\(\)|new Date\b|getTime\(\)|expire|timeout/i.test(text + source.textOf(value));
}

function judgeRelease(source: Source, { acquire, releases }: HandLock, { all }: Commands): Fault[] {
  return releases.flatMap((release): Fault[] => {
    const here = source.functionOf(release.call) ?? source.program;
    if (
      release.verb !== 'del' ||
      (isFunction(here) && /force|reset|clear/i.test(source.nameOfFunction(here)))
    )
      return [];
    const inside = all.filter(({ call, verb }) => contains(here, call) && verb !== 'del');
    if (inside.some(({ verb, script }) => verb === 'watch' || script === 'release')) return [];
    const gets = inside.filter(
      ({ verb, call, key }) =>
        (verb === 'get' || verb === 'getset') &&
        call.start < release.call.start &&
        !precedes(source, call, acquire) &&
        sameKey(source, key, release.key),
    );
    if (gets.some(({ verb }) => verb === 'getset')) return [];
    const rule =
      (gets.length > 0 && isGuarded(source, release.call, here)) ||
      asksOwner(source, release.call, here)
        ? 'compare-and-delete-in-two-commands'
        : 'release-without-compare';
    return [{ rule, node: release.call }];
  });
}

/** Whether a look at the key comes before the same function takes the lock. */
function precedes(source: Source, look: CallExpression, acquire: KeyCommand | undefined): boolean {
  if (acquire === undefined || look.start > acquire.call.start) return false;
  return source.functionOf(look) === source.functionOf(acquire.call);
}

/** Whether an `if` around a call asks another function who owns the lock. */
function asksOwner(source: Source, call: CallExpression, here: Node): boolean {
  for (const each of source.around(call)) {
    if (each === here) break;
    if (each.type !== 'IfStatement') continue;
    const asks = source.callsWithin(each.test);
    if (asks.some((ask) => /owner|holder|holds|isMine|verify/i.test(calledName(ask)))) return true;
  }
  return false;
}

/** Whether something decides that a call is made: an `if` around it, or one before it that leaves. */
function isGuarded(source: Source, call: CallExpression, here: Node): boolean {
  for (const each of source.around(call)) {
    if (each === here) break;
    if (/^(IfStatement|ConditionalExpression|LogicalExpression)$/.test(each.type)) return true;
  }
  return source.within(here).some(
    (each) =>
      each.type === 'IfStatement' &&
      each.end <= call.start &&
      source
        .within(each.consequent)
        .concat(each.consequent)
        .some((part) => /^(Return|Throw)Statement$/.test(part.type)),
  );
}

function judgeValue(source: Source, { form, releases }: HandLock, acquire: KeyCommand): Fault[] {
  if (form === 'incr' || form === 'script' || acquire.value === undefined || releases.length === 0)
    return [];
  return isShared(source, acquire.value) ? [{ rule: 'value-not-unique', node: acquire.value }] : [];
}

/** Whether two callers may write the same value. */
function isShared(source: Source, given: Node): boolean {
  const node = source.resolve(given);
  if (node.type === 'Literal') return true;
  if (node.type === 'UnaryExpression') return isShared(source, node.argument);
  if (node.type === 'TemplateLiteral')
    return node.expressions.every((each) => isShared(source, each));
  if (node.type === 'MemberExpression') return source.textOf(node) === 'process.pid';
  if (node.type === 'NewExpression') return source.textOf(node.callee) === 'Date';
  if (node.type !== 'CallExpression') return false;
  const called = source.textOf(node.callee);
  if (/^(Date\.now|performance\.now|(os\.)?hostname|moment|process\.uptime)$/.test(called))
    return true;
  if (/^(String|Number|JSON\.stringify|Math\.floor)$/.test(called))
    return node.arguments.length > 0 && node.arguments.every((each) => isShared(source, each));
  if (
    /\.(toString|getTime|valueOf|toISOString|unix)$/.test(called) &&
    node.callee.type === 'MemberExpression'
  )
    return isShared(source, node.callee.object);
  return false;
}

function judgeResult(source: Source, { form, node }: HandLock, acquire: KeyCommand): Fault[] {
  if (form === 'check' || form === 'blind' || form === 'incr') return [];
  const { call } = acquire;
  if (isQueued(source, call) || call.arguments.some((each) => isFunction(each))) return [];
  const parent = source.parent(call);
  const outer = parent?.type === 'AwaitExpression' ? source.parent(parent) : parent;
  if (outer?.type === 'ExpressionStatement') return [{ rule: 'result-not-checked', node }];
  if (outer?.type !== 'VariableDeclarator' || outer.id.type !== 'Identifier') return [];
  const { name } = outer.id;
  const here = source.functionOf(call) ?? source.program;
  const uses = source
    .within(here)
    .filter((each) => each.type === 'Identifier' && each.name === name);
  return uses.length > 1 ? [] : [{ rule: 'result-not-checked', node }];
}

/** The functions of the file that take or free the lock for others. */
function helpers(source: Source, commands: readonly KeyCommand[]): Set<string> {
  const names = commands.map(({ call }) => {
    const outer = source.functionOf(call);
    return outer === undefined ? '' : source.nameOfFunction(outer);
  });
  return new Set(names.filter((name) => name !== ''));
}

function judgeFinally(source: Source, { releases }: HandLock, acquire: KeyCommand): Fault[] {
  const here = source.functionOf(acquire.call);
  const inside = releases.filter(({ call }) => here !== undefined && contains(here, call));
  if (here !== undefined && inside.length > 0) {
    const node = leaks(
      source,
      here,
      acquire.call,
      inside.map(({ call }) => call),
    );
    return node === undefined ? [] : [{ rule: 'release-not-in-finally', node }];
  }
  return judgeUsers(source, helpers(source, [acquire]), helpers(source, releases));
}

/** The functions that call both helpers. */
function judgeUsers(
  source: Source,
  takers: ReadonlySet<string>,
  freers: ReadonlySet<string>,
): Fault[] {
  const faults: Fault[] = [];
  for (const take of source.calls().filter((call) => takers.has(calledName(call)))) {
    const here = source.functionOf(take);
    if (here === undefined) continue;
    const frees = source.callsWithin(here).filter((call) => freers.has(calledName(call)));
    if (frees.length === 0) continue;
    const node = leaks(source, here, take, frees);
    if (node !== undefined) faults.push({ rule: 'release-not-in-finally', node });
  }
  return faults;
}

/** The release that an error between it and the acquire skips; undefined if none is sure to be skipped. */
function leaks(
  source: Source,
  here: AnyFunction,
  take: CallExpression,
  frees: readonly CallExpression[],
): Node | undefined {
  if (frees.some((free) => isInFinally(source, free) || source.functionOf(free) !== here))
    return undefined;
  const after = frees.filter((free) => free.start > take.end);
  const first = after[0];
  const last = after.at(-1);
  if (first === undefined || last === undefined) return undefined;
  // One in a catch clause and one after it are as good as a finally block, or nearly.
  if (after.some((free) => [...source.around(free)].some((each) => each.type === 'CatchClause')))
    return undefined;
  const works = awaitedBetween(source, here, take, after, last).some(
    (call) => source.functionOf(call) === here && !PAUSES.test(calledName(call)),
  );
  if (!works || isSwallowed(source, here, take, last)) return undefined;
  return last;
}

function judgeRenewal(
  source: Source,
  { releases, form }: HandLock,
  acquire: KeyCommand,
  commands: Commands,
): Fault[] {
  const timed = source.calls().filter((call) => /^set(Interval|Timeout)$/.test(calledName(call)));
  for (const timer of timed) {
    const [callback] = timer.arguments;
    if (callback === undefined) continue;
    const body = source.resolve(callback);
    const renewing = commands.all.some(
      ({ call, verb, script, key }) =>
        contains(body, call) &&
        (script === 'extend' || (verb === 'expire' && sameKey(source, key, acquire.key))),
    );
    const named = source
      .callsWithin(body)
      .concat(bare(body).type === 'CallExpression' ? [body as CallExpression] : []);
    if (
      renewing ||
      named.some((call) => isRenewal(calledName(call)) || isRenewal(source.textOf(callback)))
    ) {
      return [{ rule: 'renewal-on-event-loop', node: timer }];
    }
  }
  const extended =
    commands.scripts.some(({ kind }) => kind === 'extend') ||
    commands.all.some(({ script }) => script === 'extend');
  const renewed = source.nodes.some(
    (each) => each.type === 'Identifier' && RENEWS.test(wordsOf(each.name)[0] ?? ''),
  );
  const second =
    commands.all.filter(({ verb, key }) => verb === 'expire' && sameKey(source, key, acquire.key))
      .length > 1;
  if (extended || renewed || second || form === 'check' || form === 'blind' || form === 'incr')
    return [];
  if (releases.length === 0 || acquire.expiry === undefined) return [];
  return [{ rule: 'no-renewal', node: acquire.call }];
}

function isRenewal(name: string): boolean {
  return /^(extend|renew|prolong)$|^(extend|renew|refresh|prolong)\w*(lock|lease|leader)/i.test(
    name,
  );
}

function judgeRetry(source: Source, { call }: KeyCommand): Fault[] {
  const here = source.functionOf(call);
  for (const loop of source.around(call)) {
    if (loop === here) break;
    const isLoop =
      loop.type === 'WhileStatement' ||
      loop.type === 'DoWhileStatement' ||
      loop.type === 'ForStatement';
    if (!isLoop) continue;
    const parts = source.within(loop);
    const faults: Fault[] = [];
    const pauses = parts.some((each) =>
      each.type === 'CallExpression'
        ? PAUSES.test(calledName(each))
        : each.type === 'NewExpression' && source.textOf(each.callee) === 'Promise',
    );
    if (!pauses && isRetry(source, loop, call)) faults.push({ rule: 'busy-polling', node: loop });
    const counts = parts.some(
      (each) => each.type === 'BinaryExpression' && /^[<>]=?$/.test(each.operator),
    );
    const leaves = parts.some(
      (each) => each.type === 'ThrowStatement' || each.type === 'UpdateExpression',
    );
    const aborts = parts.some(
      (each) =>
        each.type === 'Identifier' &&
        /abort|deadline|signal|cancel|stopp|running|shutdown/i.test(each.name),
    );
    if (!counts && !leaves && !aborts && isRetry(source, loop, call))
      faults.push({ rule: 'retry-without-deadline', node: loop });
    return faults;
  }
  return here === undefined ? [] : judgeRecursion(source, here);
}

/** Whether a loop repeats the acquire until it succeeds: the result ends the loop. */
function isRetry(source: Source, loop: Node, call: CallExpression): boolean {
  if (
    loop.type !== 'WhileStatement' &&
    loop.type !== 'DoWhileStatement' &&
    loop.type !== 'ForStatement'
  )
    return false;
  if (loop.test && contains(loop.test, call)) return true;
  const declared = [...source.around(call)].find(
    (each) => each.type === 'VariableDeclarator' || each.type === 'AssignmentExpression',
  );
  const name =
    declared?.type === 'VariableDeclarator'
      ? source.textOf(declared.id)
      : declared?.type === 'AssignmentExpression'
        ? source.textOf(declared.left)
        : undefined;
  if (loop.test && name !== undefined && source.textOf(loop.test).includes(name)) return true;
  return source.within(loop.body).some((each) => {
    if (each.type !== 'IfStatement') return false;
    const asks =
      contains(each.test, call) || (name !== undefined && source.textOf(each.test).includes(name));
    return (
      asks &&
      source
        .within(each.consequent)
        .concat(each.consequent)
        .some((part) => part.type === 'BreakStatement' || part.type === 'ReturnStatement')
    );
  });
}

/** A function that calls itself again after a pause, and counts nothing. */
function judgeRecursion(source: Source, here: AnyFunction): Fault[] {
  const name = source.nameOfFunction(here);
  if (name === '') return [];
  const again = source
    .callsWithin(here)
    .find((call) => calledName(call) === name || isScheduled(source, call, name));
  if (again === undefined) return [];
  const parts = source.within(here);
  const counts = parts.some(
    (each) =>
      (each.type === 'BinaryExpression' && /^[<>]=?$/.test(each.operator)) ||
      each.type === 'UpdateExpression' ||
      each.type === 'ThrowStatement' ||
      (each.type === 'BinaryExpression' && /^[-]$/.test(each.operator)) ||
      (each.type === 'CallExpression' && calledName(each) === 'reject'),
  );
  const waits = parts.some(
    (each) => each.type === 'CallExpression' && PAUSES.test(calledName(each)),
  );
  return counts || !waits ? [] : [{ rule: 'retry-without-deadline', node: again }];
}

function isScheduled(source: Source, call: CallExpression, name: string): boolean {
  const [first] = call.arguments;
  return calledName(call) === 'setTimeout' && first !== undefined && source.textOf(first) === name;
}

function judgeWrites(source: Source, { releases }: HandLock, acquire: KeyCommand): Fault[] {
  const here = source.functionOf(acquire.call);
  const release = releases.find(({ call }) => here !== undefined && contains(here, call));
  if (here === undefined || release === undefined) return [];
  const write = source
    .callsWithin(here)
    .find(
      (call) =>
        call.start > acquire.call.end &&
        call.start < release.call.start &&
        WRITES.test(calledName(call)),
    );
  return write === undefined ? [] : [{ rule: 'no-fence', node: write }];
}
