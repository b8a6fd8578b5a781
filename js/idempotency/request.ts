/** What tells a request with an Idempotency-Key from others: its key, and the fingerprint of what it asks for. */

import { createHash, type Hash } from 'node:crypto';
import type { IdempotentRequest } from './options.js';

/** The key in a header: a string of RFC 8941, or, as many clients send it, without its quotes. @internal */
export function keyOf(header: string | string[]): string | undefined {
  if (typeof header !== 'string') return undefined;
  const quoted = /^"((?:[ !#-[\]-~]|\\["\\]){1,255})"$/.exec(header)?.[1];
  if (quoted !== undefined) return quoted.replaceAll(/\\(.)/g, '$1');
  return /^[!#-~]{1,255}$/.test(header) ? header : undefined;
}

/** @internal */
export function fingerprintOf(request: IdempotentRequest): string {
  const { method, url, originalUrl, headers, body } = request;
  const has = Number(headers['content-length'] ?? 0) > 0 || 'transfer-encoding' in headers;
  if (body === undefined && has) {
    throw new Error(
      'the body of the request is not known: put the middleware for idempotency behind the one that parses bodies',
    );
  }
  const hash = createHash('sha256').update(`${method} ${originalUrl ?? url}\n`);
  addTo(hash, body);
  return hash.digest('hex');
}

/**
 * Adds a parsed body to a hash, whatever the order of its properties. Each value comes with its type, each object with its
 * size or names, so no two bodies have the same text. Without recursion: a client decides how deep its body is.
 */
function addTo(hash: Hash, body: unknown): void {
  const seen = new Set<object>();
  const todo = [body];
  while (todo.length > 0) {
    const given = todo.pop() as { toJSON?: unknown } | null | undefined;
    const isBytes = given instanceof Uint8Array;
    // Such as a date.
    const value = typeof given?.toJSON === 'function' && !isBytes ? given.toJSON() : given;
    if (isBytes) hash.update(`bytes ${given.length}\n`).update(given);
    else if (typeof value === 'object' && value !== null) {
      if (seen.has(value)) {
        throw new TypeError('the parsed body of the request has one object in two places');
      }
      seen.add(value);
      const names = Array.isArray(value) ? [...value.keys()] : Object.keys(value).sort();
      hash.update(Array.isArray(value) ? `array ${names.length}\n` : `${JSON.stringify(names)}\n`);
      for (const name of names) todo.push(value[name]);
    } else hash.update(`${typeof value} ${JSON.stringify(String(value))}\n`);
  }
}
