/** How much speaks for a lock: a cache or a mark that is written once looks much the same. */

import { basename } from 'node:path';
import { resultName } from './callbacks.js';
import { isInCatch, isInFinally } from './cleanup.js';
import type { Commands, KeyCommand } from './key-command.js';
import { namesAround, speaksOfRelease } from './releases.js';
import { isText } from './scripts.js';
import {
  type AnyFunction,
  type CallExpression,
  calledName,
  contains,
  type Node,
  type Source,
} from './source.js';
import { saysLock, saysOther, saysTake } from './words.js';

/** The score from which code counts as a lock: one clear sign, or two vague ones. */
export const ENOUGH = 4;

/** How much speaks for a lock. */
export function score(
  source: Source,
  acquire: KeyCommand,
  releases: readonly KeyCommand[],
  scripts: Commands['scripts'],
): number {
  const isCompared = releases.some(({ script }) => script === 'release');
  let sum = ofKey(source, acquire.key, isCompared) + ofNames(source, acquire.call);
  if (acquire.value && saysLock(source.textOf(acquire.value))) sum += 2;
  if (
    acquire.value &&
    /u+id|token|owner|identifier|random|nanoid|instance|worker|\bpid\b/i.test(
      source.textOf(acquire.value),
    )
  )
    sum += 1;
  const result = resultName(source, acquire.call);
  if (saysLock(result)) sum += 4;
  else if (saysTake(result)) sum += 2;
  if (acquire.script !== undefined && saysTake(calledName(acquire.call))) sum += 3;
  if (acquire.script !== undefined && saysLock(source.textOf(acquire.call).slice(0, 80))) sum += 4;
  const outer = source.functionsOf(acquire.call).find((each) => source.nameOfFunction(each) !== '');
  if (outer !== undefined && saysLock(wordsIn(source, outer))) sum += 2;
  const best = releases.map((release) => ofRelease(source, acquire, release));
  return sum + Math.max(0, ...best, scripts.some(({ kind }) => kind !== 'acquire') ? 3 : 0);
}

function ofKey(source: Source, key: Node | undefined, isCompared: boolean): number {
  if (key === undefined) return 0;
  const resolved = source.resolve(key);
  const text = [
    source.textOf(key),
    source.string(key) ?? '',
    source.textOf(resolved).slice(0, 200),
  ].join(' ');
  if (saysLock(text)) return saysOther(text) ? 1 : 5;
  // A mark that is deleted without a look at its value, such as a pause between two mails, looks much like a lock.
  return saysOther(text) ? (isCompared ? -4 : -7) : 0;
}

function ofNames(source: Source, call: CallExpression): number {
  let sum = 0;
  const names = namesAround(source, call);
  const isClear = saysLock(names);
  if (isClear) sum += 4;
  else if (saysTake(names)) sum += 3;
  if (saysOther(names)) sum -= 3;
  const { id } = source.classOf(call) ?? {};
  if (id && saysLock(id.name)) sum += 3;
  if (id && !isClear && saysOther(id.name)) sum -= 2;
  const file = basename(source.path);
  if (saysLock(file)) sum += 2;
  if (!isClear && saysOther(file)) sum -= 2;
  if (saysLock(source.textOf(call.callee))) sum += 2;
  return sum;
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
    if (isInFinally(source, release.call, acquire.call)) return 4;
    return isInCatch(source, release.call, acquire.call) ? 0 : 3;
  }
  return speaksOfRelease(source, release) ? 4 : 1;
}
