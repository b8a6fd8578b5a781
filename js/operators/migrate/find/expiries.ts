/** Expiries that a command of their own sets. */

import { routineOf } from './callbacks.js';
import type { KeyCommand } from './key-command.js';
import { sameKey } from './keys.js';
import { contains, type Source } from './source.js';
import { sameTransaction } from './transactions.js';

/** The command that sets the expiry of a lock: in the same MULTI, or else in the same function, or else anywhere. */
export function laterExpiry(
  source: Source,
  acquire: KeyCommand,
  all: readonly KeyCommand[],
): KeyCommand | undefined {
  const later = all.filter(
    ({ verb, key }) => verb === 'expire' && sameKey(source, key, acquire.key),
  );
  if (later.length < 2) return later[0];
  const here = routineOf(source, acquire.call, all);
  return (
    later.find(({ call }) => sameTransaction(source, call, acquire.call)) ??
    later.find(({ call }) => contains(here, call)) ??
    later[0]
  );
}
