/** Whether code writes data under a lock. */

import type { HandLock, KeyCommand } from '../key-command.js';
import type { Fault } from '../lock.js';
import { calledName, contains, follows, type Source } from '../source.js';

const WRITES =
  /^(save|update|updateOne|updateMany|insert|insertOne|insertMany|insertInto|upsert|findOneAndUpdate|findByIdAndUpdate|bulkWrite|executeRaw|\$executeRaw|writeFile)$/;

export function judgeWrites(source: Source, { releases }: HandLock, acquire: KeyCommand): Fault[] {
  const here = source.functionOf(acquire.call);
  const release = releases.find(({ call }) => here !== undefined && contains(here, call));
  if (here === undefined || release === undefined) return [];
  const write = source
    .callsWithin(here)
    .find(
      (call) =>
        follows(call, acquire.call) && follows(release.call, call) && WRITES.test(calledName(call)),
    );
  return write === undefined ? [] : [{ rule: 'no-fence', node: write }];
}
