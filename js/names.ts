/** What a lock may be called. */

import { isWellFormed, show } from './checks.js';
import { argumentError } from './errors.js';

const NAME_BYTES_MAX = 1024;

/** Keys of other locks' waiters, holders and fences end in these. */
const RESERVED_SUFFIXES = [':fence', ':queue', ':shared', ':waiters'];

/**
 * On Cluster the side keys of `a}b` or `{}x` would stand in another slot than the lock.
 *
 * @internal
 */
export function checkSlot(key: string): void {
  const tag = /^[^{]*\{([^}]*)\}/.exec(key)?.[1];
  if (!tag && key.includes('}')) {
    const message = `on Cluster a lock's key with a "}" must have a hash tag, as "cart:{42}" has, got ${show(key)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

/** @internal */
export function checkName(name: unknown): asserts name is string {
  if (typeof name !== 'string') {
    throw argumentError(
      'ERR_INVALID_ARG_TYPE',
      `a lock's name must be a string, got ${show(name)}`,
    );
  }
  if (name === '') {
    throw argumentError('ERR_INVALID_ARG_VALUE', "a lock's name must not be empty");
  }
  if (!isWellFormed(name)) {
    const message = `a lock's name must be well-formed Unicode, got ${show(name)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  // A UTF-16 unit is at most three bytes of UTF-8: short names need no count.
  if (name.length * 3 > NAME_BYTES_MAX && Buffer.byteLength(name) > NAME_BYTES_MAX) {
    const message = `a lock's name must be at most ${NAME_BYTES_MAX} bytes of UTF-8, got ${Buffer.byteLength(name)}`;
    throw argumentError('ERR_OUT_OF_RANGE', message);
  }
  for (const suffix of RESERVED_SUFFIXES) {
    if (name.endsWith(suffix)) {
      const message = `a lock's name must not end in "${suffix}", which marks a key that another lock needs, got ${show(name)}`;
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
  }
}

/**
 * Several names for one acquire.
 *
 * @internal
 */
export function checkNames(names: readonly unknown[]): asserts names is readonly string[] {
  if (names.length === 0) {
    throw argumentError('ERR_INVALID_ARG_VALUE', 'a list of names must not be empty');
  }
  for (const name of names) checkName(name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) {
    const message = `a list of names must not have one twice, got ${show(twice)} again`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}
