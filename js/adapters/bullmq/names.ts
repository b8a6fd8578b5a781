/** The name of the lock of a job. */

import { joinNames, RESERVED_SUFFIXES } from '../../base/names.js';

/** The ends that no lock may have, and all names that end in one and some `%`. */
const RESERVED = new RegExp(`(?:${[...RESERVED_SUFFIXES].join('|')})%*$`);

/**
 * Joins a queue and a key, so that no two pairs have the same name: a queue of an old BullMQ may have a colon in it. One `%`
 * more follows a key such as `queue` or `waiting`, with which no name may end.
 *
 * @internal
 */
export function lockName(queue: string, key: string): string {
  const name = joinNames(queue, key, ':');
  return RESERVED.test(name) ? `${name}%` : name;
}
