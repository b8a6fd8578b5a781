/** Tells a request with an Idempotency-Key from others: by its key, and the fingerprint of what it asks for. */

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
  const { method, url, originalUrl, rawBody } = request;
  const body = rawBody ?? request.body;
  if (isUnread(request, body)) {
    throw new Error(
      'the body of the request is not known: put the middleware for idempotency behind one that parses bodies of its type',
    );
  }
  const hash = createHash('sha256').update(`${method} ${originalUrl ?? url}\n`);
  addTo(hash, body instanceof Uint8Array ? partsOf(body, request) : body);
  return hash.digest('hex');
}

/** Whether the request has a body that nothing has read. Parsers of other types may have set an empty object. */
function isUnread(request: IdempotentRequest, body: unknown): boolean {
  const { headers } = request;
  const has = Number(headers['content-length'] ?? 0) > 0 || 'transfer-encoding' in headers;
  if (!has || body === undefined) return has;
  const isEmpty = typeof body === 'object' && body !== null && namesOf(body).length === 0;
  // A request of Fastify has that of Node.
  const { raw = request } = request as { readonly raw?: { readonly readableDidRead?: boolean } };
  return isEmpty && 'readableDidRead' in raw && raw.readableDidRead === false;
}

/** The parts of a multipart body: clients choose another boundary for each request. Any other body is one part. */
function partsOf(bytes: Uint8Array, { headers }: IdempotentRequest): readonly Uint8Array[] {
  const type = headers['content-type'] ?? '';
  const found = /^\s*multipart\/.*?;\s*boundary=(?:"([^"]+)"|([^\s;]+))/i.exec(type);
  const boundary = found?.[1] ?? found?.[2];
  if (boundary === undefined) return [bytes];
  const [all, delimiter] = [Buffer.from(bytes), `--${boundary}`];
  const parts: Buffer[] = [];
  for (let from = 0; ; ) {
    const to = all.indexOf(delimiter, from);
    parts.push(all.subarray(from, to === -1 ? undefined : to));
    if (to === -1) return parts;
    from = to + delimiter.length;
  }
}

/**
 * Adds a parsed body to a hash, whatever the order of its properties. Each value comes with its type, each object with its
 * size or names, so no two bodies have the same text. Without recursion: a client decides how deep its body is.
 */
function addTo(hash: Hash, body: unknown): void {
  const seen = new Set<unknown>();
  const todo = [body];
  while (todo.length > 0) {
    const given = todo.pop();
    const value = plain(given, hash);
    if (value instanceof Uint8Array) hash.update(`bytes ${value.length}\n`).update(value);
    else if (typeof value === 'object' && value !== null) {
      if (seen.has(given)) {
        throw new TypeError('the parsed body of the request has one object in two places');
      }
      seen.add(given);
      const names = namesOf(value);
      hash.update(Array.isArray(value) ? `array ${names.length}\n` : `${JSON.stringify(names)}\n`);
      for (const name of names) todo.push((value as Record<string | number, unknown>)[name]);
    } else hash.update(`${typeof value} ${JSON.stringify(String(value))}\n`);
  }
}

/** A value as bytes, an array, an object whose properties say all of it, or a primitive. */
function plain(given: unknown, hash: Hash): unknown {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return given;
  if (ArrayBuffer.isView(given)) {
    return new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
  }
  if (given instanceof ArrayBuffer) return new Uint8Array(given);
  // Such as a date.
  if ('toJSON' in given && typeof given.toJSON === 'function') return given.toJSON();
  const kind = given.constructor?.name ?? 'object';
  // Such as a Map or URLSearchParams.
  if (Symbol.iterator in given) {
    hash.update(`${kind} as `);
    return [...(given as Iterable<unknown>)];
  }
  const prototype = Object.getPrototypeOf(given);
  const hides = prototype !== null && Object.getPrototypeOf(prototype) !== null;
  if (Symbol.asyncIterator in given || (hides && namesOf(given).length === 0)) {
    throw new TypeError(
      `the parsed body of the request has a ${kind}, whose content is not known: parse it into bytes or plain values`,
    );
  }
  return given;
}

function namesOf(value: object): readonly (string | number)[] {
  return Array.isArray(value) ? [...value.keys()] : Object.keys(value).sort();
}
