/** Locks that other code than holdfast holds. */

import { survey } from '../internal/survey.js';
import { CliError, Exit } from './exit.js';
import type { Where } from './options.js';

/**
 * How long other code holds the lock, in ms; `null` if without an end, undefined if the key does not exist. In a
 * Cluster all servers but the one of its slot refuse to answer.
 */
export async function foreignLease(
  { target, options, label }: Where,
  name: string,
): Promise<number | null | undefined> {
  const key = `${options.prefix ?? 'lock:'}${name}`;
  const surveys = await survey(target, options, [['PTTL', key]]);
  const answers = surveys.flatMap((each) => each.answers);
  const answer = answers.find(({ refused }) => !refused);
  if (answer === undefined) {
    const why = answers[0]?.text ?? surveys[0]?.failure ?? 'no server answered';
    const message = `cannot tell whether other code holds lock "${name}" on ${label}: ${why}`;
    throw new CliError('ERR_LOCK_SERVER', Exit.Unavailable, message, name);
  }
  const lease = Number(answer.text);
  if (lease === -2) return undefined;
  return lease < 0 ? null : lease;
}
