/** The votes of each client on an operation, in the form of node-redlock 5. */

/** A client of ioredis or node-redis, as far as this module uses its type. */
export interface Client {
  /** Ends the connection. */
  quit(): Promise<unknown>;
}

/** The vote of one client. */
export type ClientExecutionResult =
  | { client: Client; vote: 'for'; value: number }
  | { client: Client; vote: 'against'; error: Error };

/** The known votes of all clients on one attempt. */
export type ExecutionStats = {
  /** The number of clients. */
  readonly membershipSize: number;
  /** The number of votes that decides. */
  readonly quorumSize: number;
  /** The clients that agreed. */
  readonly votesFor: Set<Client>;
  /** The clients that did not, and why. */
  readonly votesAgainst: Map<Client, Error>;
};

/** The result of an operation. */
export type ExecutionResult = {
  /** The votes of each client, at each attempt. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
};
