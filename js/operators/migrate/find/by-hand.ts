/** Finds locks that code takes by commands of its own. */

import { basename } from 'node:path';
import { lateExpiry } from './expiries.js';
import type { Commands, HandLock, KeyCommand } from './key-command.js';
import { isBlind, isCheckedBefore, isTakenByCount, isTakenBySwap } from './odd-forms.js';
import { releasesOf } from './releases.js';
import { ENOUGH, score } from './score.js';
import { calledName, type Node, nameOf, type Source } from './source.js';
import { saysLock, saysOther } from './words.js';

/** Calls that run a script, or make a method of it. */
const SENDS = /^(eval|evalsha|evalSha|defineCommand|defineScript|scriptLoad|script|invokeScript)$/i;

/** Finds the locks of a file. */
export function findByHand(source: Source, { all, scripts }: Commands): HandLock[] {
  const releases = all.filter(({ verb, script }) => verb === 'del' || script === 'release');
  const found: HandLock[] = [];
  const add = (acquire: KeyCommand, form: HandLock['form'], enough: number) => {
    const own = releasesOf(source, acquire, releases);
    // A key that is looked at, set and left to expire may lock an account.
    if ((form === 'check' || form === 'blind') && own.length === 0) return;
    const expiry = acquire.expiry ?? lateExpiry(source, acquire, all);
    // A key that is taken once for all, such as a name, is no lock unless a word says so.
    const isForEver = own.length === 0 && expiry === undefined;
    if (score(source, acquire, own, scripts) < enough + (isForEver ? 1 : 0)) return;
    found.push({ acquire, node: acquire.call, form, releases: own, expiry });
  };
  for (const command of all) {
    const { verb, nx, script } = command;
    if (verb === 'set' && nx === true) add(command, 'set', ENOUGH);
    else if (verb === 'setnx') add(command, 'setnx', ENOUGH);
    else if (script === 'acquire') add(command, 'script', ENOUGH);
    else if (verb === 'incr' && isTakenByCount(source, command, all))
      add(command, 'incr', ENOUGH + 1);
    else if (isTakenBySwap(source, command, all)) add(command, 'getset', ENOUGH + 1);
    else if (verb === 'set' && isCheckedBefore(source, command, all))
      add(command, 'check', ENOUGH + 1);
    else if (verb === 'set' && isBlind(source, command, all)) add(command, 'blind', ENOUGH + 1);
  }
  const lone = scripts.find(({ node }) => isUsed(source, node));
  if (found.length === 0 && lone !== undefined)
    found.push({
      acquire: undefined,
      node: lone.node,
      form: 'script',
      releases: [],
      expiry: undefined,
    });
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
