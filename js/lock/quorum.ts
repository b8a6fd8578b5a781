/** The operations that a quorum does not support, and why. */

import { argumentError } from '../base/errors.js';
import type { ErrorContext } from './outcome.js';

const WHY = {
  adopt: 'a lock there cannot be adopted: its servers cannot change its holder atomically',
  downgrade: 'a lock there cannot be downgraded: its servers cannot agree on who shares it',
  forceRelease: 'a lock there cannot be released by force: its servers cannot agree on the holder',
  limit: 'limit is not for a quorum: each majority of its servers would count other permits',
  mayBlock: 'mayBlock is not for a quorum: the lock of a job is on the one server of BullMQ',
  owner: 'owner is not for a quorum: its servers cannot change the holder of a lock atomically',
  query: 'its locks cannot be queried: only a majority of its servers knows who holds one',
  runOnce: 'runOnce is not for a quorum: a server that restarts would forget which slots are done',
  shared: 'mode "shared" is not for a quorum: its servers cannot agree on who shares a lock',
  steal: 'steal is not for a quorum: its servers cannot change the holder of a lock atomically',
} as const;

/**
 * Throws if the locks are kept on a quorum.
 *
 * @internal
 */
export function refuseOnQuorum({ servers, server }: ErrorContext, what: keyof typeof WHY): void {
  if (servers.length === 0) return;
  throw argumentError('ERR_INVALID_ARG_VALUE', `${server}: ${WHY[what]}`);
}
