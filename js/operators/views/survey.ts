/** Surveys of servers: for the command line, not for services. */

import { startable } from '../../connect/connect.js';
import type { ConnectOptions } from '../../connect/options.js';
import { prepare } from '../../connect/prepare.js';
import type { ConnectTarget } from '../../connect/target.js';
import { toError } from '../../lock/outcome.js';
import { operations } from '../../native/operations.js';
import type { Outcome } from '../../native/records.js';

/** An answer to one question. */
export interface ServerAnswer {
  /** The server's words, an item per line; or why it refused. */
  readonly text: string;
  readonly refused: boolean;
}

/** The answers of one server. */
export interface ServerSurvey {
  /** The server, without login. */
  readonly server: string;
  /** Why the server could not be asked. The rest is empty then. */
  readonly failure?: string;
  /** How long each of a few round trips took, in µs. */
  readonly roundTrips: number[];
  /** How far the server's clock is ahead of this machine's, in µs. */
  readonly ahead: number;
  /** The server's answers, in the order of the questions. */
  readonly answers: ServerAnswer[];
}

/**
 * Asks every server of a target: each that has slots in a Cluster, the master of Sentinels, all of a quorum.
 * It needs no manager, so it also reports on a server that no manager could use.
 *
 * @param questions - Commands, each a list of its words.
 * @throws LockConnectionError if it is not even known which servers there are.
 */
export async function survey(
  target: ConnectTarget | undefined,
  options: ConnectOptions,
  questions: readonly string[][],
): Promise<ServerSurvey[]> {
  const { context, options: wanted, logins } = prepare(target, options);
  const outcome = await new Promise<Outcome>((asked) => {
    const ask = (entry: number) => operations.bridge.survey(entry, wanted, [...questions]);
    startable(context, () => operations.takeFor(ask, asked));
  });
  logins.end();
  if (outcome.text?.surveys === undefined) throw toError(outcome, context, 'ask');
  return outcome.text.surveys;
}
