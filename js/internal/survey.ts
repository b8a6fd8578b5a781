/** What the servers of a place tell about themselves: for the command line, not for services. */

import { prepare, usable } from '../api/connect.js';
import type { ConnectOptions } from '../api/connect-options.js';
import type { Place } from '../api/target.js';
import { askServers, type Outcome } from '../native/bridge.js';
import { toError } from './outcome.js';

/** An answer to one question. */
export interface ServerAnswer {
  /** What the server said, an item per line; or why it refused. */
  readonly text: string;
  readonly refused: boolean;
}

/** What one server answered. */
export interface ServerSurvey {
  /** The server, without login. */
  readonly server: string;
  /** Why it could not be asked. The rest is empty then. */
  readonly failure?: string;
  /** How long each of a few round trips took, in µs. */
  readonly roundTrips: number[];
  /** How far its clock is ahead of this machine's, in µs. */
  readonly ahead: number;
  /** Its answers, in the order of the questions. */
  readonly answers: ServerAnswer[];
}

/**
 * Asks every server of a place: of a Cluster each that has slots, of Sentinels the master, of a quorum
 * all. Needs no manager, so it also tells of a server that none could use.
 *
 * @param questions - Commands, each a list of its words.
 * @throws LockConnectionError if it is not even known which servers there are.
 */
export async function survey(
  target: Place | undefined,
  options: ConnectOptions,
  questions: readonly string[][],
): Promise<ServerSurvey[]> {
  const { context, options: wanted } = prepare(target, options);
  const outcome = await new Promise<Outcome>((asked) => {
    usable(() => askServers(wanted, questions, asked));
  });
  if (outcome.text?.surveys === undefined) throw toError(outcome, context, 'ask');
  return outcome.text.surveys;
}
