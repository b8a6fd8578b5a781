/** Whether something renews a lock, and what. */

import type { Commands, HandLock, KeyCommand } from '../key-command.js';
import { sameKey } from '../keys.js';
import type { Fault } from '../lock.js';
import {
  bare,
  calledName,
  contains,
  type Node,
  nameOf,
  receiverOf,
  type Source,
} from '../source.js';
import { wordsOf } from '../words.js';

const RENEWS = /^(extend|renew|refresh|heartbeat|prolong|keepalive|reacquire|touch)/;

export function judgeRenewal(
  source: Source,
  lock: HandLock,
  acquire: KeyCommand,
  commands: Commands,
): Fault[] {
  const timer = source
    .calls()
    .filter((call) => /^set(Interval|Timeout)$/.test(calledName(call)))
    .find(
      ({ arguments: [callback] }) => callback && isRenewedBy(source, callback, acquire, commands),
    );
  if (timer !== undefined) return [{ rule: 'renewal-on-event-loop', node: timer }];
  if (/^(check|blind|incr|getset)$/.test(lock.form) || mayBeRenewed(source, acquire, commands))
    return [];
  if (lock.releases.length === 0 || acquire.expiry === undefined) return [];
  return [{ rule: 'no-renewal', node: acquire.call }];
}

/** Whether a timer sets the expiry of the lock, or calls a function that says so. */
function isRenewedBy(
  source: Source,
  callback: Node,
  acquire: KeyCommand,
  { all }: Commands,
): boolean {
  const body = source.resolve(callback);
  const renews = all.some(
    ({ call, verb, script, key }) =>
      contains(body, call) &&
      (script === 'extend' || (verb === 'expire' && sameKey(source, key, acquire.key))),
  );
  const calls = body.type === 'CallExpression' ? [body] : source.callsWithin(body);
  return (
    renews || isRenewal(lastNameOf(callback)) || calls.some((call) => isRenewal(calledName(call)))
  );
}

/** Whether the file extends a lock somewhere, or names a function that does. */
function mayBeRenewed(source: Source, acquire: KeyCommand, { all, scripts }: Commands): boolean {
  return (
    all.some(({ verb, key }) => verb === 'expire' && sameKey(source, key, acquire.key)) ||
    scripts.some(({ kind }) => kind === 'extend') ||
    all.some(({ script }) => script === 'extend') ||
    source.nodes.some(
      (each) => each.type === 'Identifier' && RENEWS.test(wordsOf(each.name)[0] ?? ''),
    )
  );
}

/** The name of a function that is handed on: `this.renew`, or `this.renew.bind(this)`. */
function lastNameOf(callback: Node): string {
  const node = bare(callback);
  if (node.type === 'CallExpression' && calledName(node) === 'bind') {
    const receiver = receiverOf(node);
    return receiver === undefined ? '' : lastNameOf(receiver);
  }
  return node.type === 'MemberExpression' ? nameOf(node.property) : nameOf(node);
}

function isRenewal(name: string): boolean {
  return /^_*(?:(?:extend|renew|prolong)$|(?:extend|renew|refresh|prolong)\w*(?:lock|lease|leader))/i.test(
    name,
  );
}
