/** Owners that callers name. Each hold of an owner has a token of its own, which tells the owner at its end. */

import { Buffer } from 'node:buffer';
import { checkText } from './checks.js';
import { argumentError } from './errors.js';
import { escaped, readLabel } from './label.js';

const OWNER_BYTES_MAX = 256;
/** The start of an owner in place of a label, which has no such character. The core knows it, too. */
const MARK = '@';

/** @internal */
export function checkOwner(owner: unknown): asserts owner is string {
  checkText(owner, 'owner');
  if (owner === '') throw argumentError('ERR_INVALID_ARG_VALUE', 'owner must not be empty');
  const bytes = Buffer.byteLength(owner);
  if (bytes <= OWNER_BYTES_MAX) return;
  const message = `owner must be at most ${OWNER_BYTES_MAX} bytes of UTF-8, got ${bytes}`;
  throw argumentError('ERR_OUT_OF_RANGE', message);
}

/** The text in place of a label in the tokens of an owner: two owners never have the same. @internal */
export function labelOfOwner(owner: string): string {
  return `${MARK}${escaped(owner)}`;
}

/** The owner that stands in place of a label; `null` if a label stands there. @internal */
export function ownerIn(written: string): string | null {
  return written.startsWith(MARK) ? readLabel(written.slice(MARK.length)) : null;
}
