/** Counts the votes of an operation. */

import {
  LockConnectionError,
  LockLostError,
  LockQuorumError,
  LockTimeoutError,
} from '../../base/errors.js';
import { locked } from './errors.js';
import type { Client, ExecutionStats } from './votes.js';

/** The message of ioredis for a server that cannot be reached. */
const UNREACHABLE = 'Connection is closed.';

/** @internal */
export function statsOf(
  clients: ReadonlySet<Client>,
  against: ReadonlyMap<Client, Error> = new Map(),
): ExecutionStats {
  return {
    membershipSize: clients.size,
    quorumSize: Math.floor(clients.size / 2) + 1,
    votesFor: new Set([...clients].filter((client) => !against.has(client))),
    votesAgainst: new Map(against),
  };
}

/**
 * The votes against, derived from the error of holdfast. Only the error of a quorum that could not be reached has a
 * cause for each server; any other error counts for every client.
 *
 * @internal
 */
export function statsOfError(
  clients: ReadonlySet<Client>,
  error: Error,
  resources: number,
): ExecutionStats {
  const against = new Map<Client, Error>();
  if (error instanceof LockQuorumError) {
    [...clients].forEach((client, i) => {
      const cause = error.servers[i]?.cause;
      if (cause !== undefined) against.set(client, new Error(cause));
    });
  } else {
    const reason = reasonOf(error, resources);
    for (const client of clients) against.set(client, reason);
  }
  return statsOf(clients, against);
}

/** The votes on a release that has freed `had` of so many resources. @internal */
export function releasedOf(
  clients: ReadonlySet<Client>,
  had: number,
  resources: number,
): ExecutionStats {
  if (had === resources) return statsOf(clients);
  return statsOfError(clients, locked(had, resources), resources);
}

/** The reason of a vote against, as node-redlock with ioredis has it. */
function reasonOf(error: Error, resources: number): Error {
  if (isHeld(error)) return locked(0, resources);
  if (error instanceof LockConnectionError) return new Error(UNREACHABLE, { cause: error });
  return error;
}

/** Whether the lock is held by another client, or was lost. */
function isHeld(error: Error): boolean {
  return error instanceof LockTimeoutError || error instanceof LockLostError;
}
