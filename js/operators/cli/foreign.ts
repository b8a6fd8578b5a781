/** Locks that other code than holdfast holds. */

import { human } from '../../base/time.js';
import { survey } from '../views/survey.js';
import { CliError, Exit } from './exit.js';
import type { Where } from './options.js';

/** A lock that other code holds. */
export interface ForeignHold {
  /** How long it still lasts, in ms; `null` if without an end. */
  readonly lease: number | null;
  /** The value of the key; `null` if it is no text. */
  readonly value: string | null;
}

/**
 * The hold of other code; undefined if the key does not exist. In a Cluster all servers but the one of its slot refuse
 * to answer.
 */
export async function foreignHold(
  { target, options, label }: Where,
  name: string,
): Promise<ForeignHold | undefined> {
  const key = `${options.prefix ?? 'lock:'}${name}`;
  const surveys = await survey(target, options, [
    ['PTTL', key],
    ['GET', key],
  ]);
  const answering = surveys.find(({ answers: [lease] }) => lease?.refused === false);
  const [lease, value] = answering?.answers ?? [];
  if (lease === undefined) {
    const why = surveys[0]?.answers[0]?.text ?? surveys[0]?.failure ?? 'no server answered';
    const message = `cannot tell whether other code holds lock "${name}" on ${label}: ${why}`;
    throw new CliError('ERR_LOCK_SERVER', Exit.Unavailable, message, name);
  }
  const ms = Number(lease.text);
  if (ms === -2) return undefined;
  const isText = value?.refused === false && !value.text.includes('\ufffd');
  return { lease: ms < 0 ? null : ms, value: isText ? value.text : null };
}

/** How long the hold still lasts, for people. */
export function restOf({ lease }: ForeignHold): string {
  return lease === null ? 'without an end to its lease' : `for ${human(lease)} more`;
}
