/** What each client said to an operation, in the words of node-redlock 5. */

import { LockLostError, LockQuorumError, LockTimeoutError } from '../api/errors.js';
import { locked } from './errors.js';

/** What is asked of a client here: it can be ended. Its type is that of ioredis or node-redis. */
export interface Client {
  /** Ends the connection. */
  quit(): Promise<unknown>;
}

/** What one client said. */
export type ClientExecutionResult =
  | { client: Client; vote: 'for'; value: number }
  | { client: Client; vote: 'against'; error: Error };

/** What all clients said to one attempt, as far as it is known. */
export type ExecutionStats = {
  /** How many clients there are. */
  readonly membershipSize: number;
  /** How many of them decide. */
  readonly quorumSize: number;
  /** Those who agreed. */
  readonly votesFor: Set<Client>;
  /** Those who did not, and why. */
  readonly votesAgainst: Map<Client, Error>;
};

/** What came of an operation. */
export type ExecutionResult = {
  /** What each client said, at each attempt. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
};

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
 * Who voted against, by the error that came of it. Only a quorum that could not be reached tells of
 * each server; of all else every client is the witness.
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
      const cause = error.nodes[i]?.cause;
      if (cause !== undefined) against.set(client, new Error(cause));
    });
  } else {
    const reason = isHeld(error) ? locked(0, resources) : error;
    for (const client of clients) against.set(client, reason);
  }
  return statsOf(clients, against);
}

/** Whether the lock is another's, or nobody's. */
function isHeld(error: Error): boolean {
  return error instanceof LockTimeoutError || error instanceof LockLostError;
}
