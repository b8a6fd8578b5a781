/** The faults of a lock that code takes by hand. A rule that is not sure is silent. */

import type { Commands, HandLock } from '../key-command.js';
import type { Fault } from '../lock.js';
import type { Source } from '../source.js';
import { judgeRelease } from './comparison.js';
import { judgeExpiry } from './expiry.js';
import { judgeRenewal } from './renewal.js';
import { judgeResult } from './result.js';
import { judgeRetry } from './retry.js';
import { judgeFinally } from './skipped-release.js';
import { judgeValue } from './value.js';
import { judgeWrites } from './writes.js';

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
    ...judgeRetry(source, acquire, commands),
    ...judgeWrites(source, lock, acquire),
  ];
}
