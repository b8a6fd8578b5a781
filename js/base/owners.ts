/** Owners that callers name: an owner has one token, which every process can make of its name. */

import { Buffer } from 'node:buffer';
import { checkText } from './checks.js';
import { argumentError } from './errors.js';

const OWNER_BYTES_MAX = 256;
/** No manager has a name that begins so. */
const TOKEN = /^hf1\.~([A-Za-z0-9_-]+)\.1$/;

/** @internal */
export function checkOwner(owner: unknown): asserts owner is string {
  checkText(owner, 'owner');
  const bytes = Buffer.byteLength(owner);
  if (bytes >= 1 && bytes <= OWNER_BYTES_MAX) return;
  const message = `owner must have 1 to ${OWNER_BYTES_MAX} bytes of UTF-8, got ${bytes}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

/** The token of an owner, the same in every process. @internal */
export function tokenOfOwner(owner: string): string {
  return `hf1.~${Buffer.from(owner).toString('base64url')}.1`;
}

/** The owner that has a token; `null` if it is none of these tokens. @internal */
export function ownerOf(token: string): string | null {
  const [, name] = TOKEN.exec(token) ?? [];
  if (name === undefined) return null;
  const owner = Buffer.from(name, 'base64url').toString();
  return tokenOfOwner(owner) === token ? owner : null;
}
