/** Whether a crash or a clock may keep a lock too long, or free it too early. */

import { endsByClock, laterExpiry } from '../expiries.js';
import type { Commands, HandLock, KeyCommand } from '../key-command.js';
import { sameKey } from '../keys.js';
import type { Fault } from '../lock.js';
import type { Source } from '../source.js';
import { sameTransaction } from '../transactions.js';

export function judgeExpiry(
  source: Source,
  { form }: HandLock,
  acquire: KeyCommand,
  commands: Commands,
): Fault[] {
  const faults: Fault[] =
    form === 'check'
      ? [{ rule: 'check-then-set', node: acquire.call }]
      : form === 'blind'
        ? [{ rule: 'set-without-condition', node: acquire.call }]
        : [];
  if (form === 'script' || acquire.expiry !== undefined) return faults;
  return [...faults, ...judgeLateExpiry(source, acquire, form, commands)];
}

/** Judges a lock that is taken without an expiry. */
function judgeLateExpiry(
  source: Source,
  acquire: KeyCommand,
  form: HandLock['form'],
  { all }: Commands,
): Fault[] {
  const later = laterExpiry(source, acquire, all);
  if (later !== undefined) {
    const isTogether = sameTransaction(source, later.call, acquire.call);
    const rule = isTogether ? 'expiry-set-by-losers' : 'expiry-in-second-command';
    return [{ rule, node: later.call }];
  }
  if (endsByClock(source, acquire, all)) {
    const byClock: Fault = { rule: 'expiry-by-clock', node: acquire.call };
    const isBlind = form === 'getset' && !isLookedAt(source, acquire, all);
    return isBlind ? [byClock, { rule: 'expiry-set-by-losers', node: acquire.call }] : [byClock];
  }
  // An expiry of some other key may be that of this one, by another name.
  if (all.some(({ verb }) => verb === 'expire')) return [];
  return [{ rule: 'no-expiry', node: acquire.call }];
}

/** Whether the code looks at the key before it writes. */
function isLookedAt(source: Source, { call, key }: KeyCommand, all: Commands['all']): boolean {
  return all.some(
    (each) => each.verb === 'get' && each.call.start < call.start && sameKey(source, each.key, key),
  );
}
