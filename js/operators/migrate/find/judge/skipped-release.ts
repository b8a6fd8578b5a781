/** Whether an error skips a release. */

import { skippedRelease } from '../cleanup.js';
import type { HandLock, KeyCommand } from '../key-command.js';
import type { Fault } from '../lock.js';
import { calledName, contains, type Source } from '../source.js';

/** The functions of the file that take or free the lock for others. */
function helpers(source: Source, commands: readonly KeyCommand[]): Set<string> {
  const names = commands.map(({ call }) => {
    const outer = source.functionOf(call);
    return outer === undefined ? '' : source.nameOfFunction(outer);
  });
  return new Set(names.filter((name) => name !== ''));
}

export function judgeFinally(source: Source, { releases }: HandLock, acquire: KeyCommand): Fault[] {
  const here = source.functionOf(acquire.call);
  const inside = releases.filter(({ call }) => here !== undefined && contains(here, call));
  if (here !== undefined && inside.length > 0) {
    const node = skippedRelease(
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
  const takes = source.calls().filter((call) => takers.has(calledName(call)));
  return takes.flatMap((take): Fault[] => {
    const here = source.functionOf(take);
    if (here === undefined) return [];
    const frees = source.callsWithin(here).filter((call) => freers.has(calledName(call)));
    const node = skippedRelease(source, here, take, frees);
    return node === undefined ? [] : [{ rule: 'release-not-in-finally', node }];
  });
}
