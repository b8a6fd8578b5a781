/** The name of the lock of a job. */

import { joinNames } from '../../base/names.js';

/** A queue of an old BullMQ may have a colon in its name. @internal */
export function lockName(queue: string, key: string): string {
  return joinNames(queue, key, ':');
}
