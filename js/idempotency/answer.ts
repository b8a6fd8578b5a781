/** The answers that are given in place of a handler's: those that were kept, and refusals. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { PROBLEM_HEADERS } from '../base/http.js';

/** @internal */
export interface Answer {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** Undefined if it was too large to be kept. */
  readonly body: Buffer | undefined;
}

/** An answer as it is stored: of one that was too large only the status. @internal */
export interface Kept {
  readonly status: number;
  readonly headers?: OutgoingHttpHeaders;
  /** In base64. */
  readonly body?: string;
}

/** Headers of a connection, of a moment, or of a session, which no repeated answer has. */
const NOT_KEPT =
  /^(connection|content-length|date|keep-alive|set-cookie|trailer|transfer-encoding|upgrade)$/i;

/** @internal */
export function kept({ status, headers, body }: Answer): Kept {
  if (body === undefined) return { status };
  const some = Object.entries(headers).filter(([name]) => !NOT_KEPT.test(name));
  return { status, headers: Object.fromEntries(some), body: body.toString('base64') };
}

/** The answer to a repeat. @internal */
export function replayed({ status, headers, body }: Kept): Answer {
  if (body === undefined) return refusal('large', ` (it was answered ${status})`);
  const all = { ...headers, 'idempotency-replayed': 'true' };
  return { status, headers: all, body: Buffer.from(body, 'base64') };
}

const PROBLEMS = {
  missing: {
    status: 400,
    title: 'Idempotency-Key is missing',
    detail: 'this operation needs the header Idempotency-Key: choose a key for what is to be done',
  },
  malformed: {
    status: 400,
    title: 'Idempotency-Key is malformed',
    detail:
      'the header Idempotency-Key must be a string in double quotes, of 1 to 255 characters of ASCII',
  },
  outstanding: {
    status: 409,
    title: 'A request is outstanding for this Idempotency-Key',
    detail: 'a request with this key is being processed: repeat this one later',
  },
  interrupted: {
    status: 409,
    title: 'The outcome of the request for this Idempotency-Key is unknown',
    detail:
      'an earlier request with this key ended without an answer, and may have had effects: find out what was done',
  },
  large: {
    status: 409,
    title: 'The answer for this Idempotency-Key is not stored',
    detail: 'the request with this key is done, but its answer was too large to be repeated',
  },
  reused: {
    status: 422,
    title: 'Idempotency-Key is already used',
    detail: 'this key belongs to a request with another method, URL or body: choose another key',
  },
} as const;

/** @internal */
export function refusal(what: keyof typeof PROBLEMS, more = ''): Answer {
  const problem = { ...PROBLEMS[what], detail: PROBLEMS[what].detail + more };
  const headers = { ...PROBLEM_HEADERS, ...(what === 'outstanding' ? { 'Retry-After': '1' } : {}) };
  return { status: problem.status, headers, body: Buffer.from(JSON.stringify(problem)) };
}

/** What is used of a reply of Fastify. @internal */
export interface Reply {
  readonly raw: ServerResponse;
  code(status: number): Reply;
  headers(headers: object): Reply;
  send(body: unknown): unknown;
}

/** Sends an answer by Fastify's reply, or by the response of Express or node:http. @internal */
export function send(to: Reply | ServerResponse, { status, headers, body }: Answer): void {
  if ('code' in to) {
    // Fastify gives each body a type, also an empty one.
    to.code(status)
      .headers(headers)
      .send(body?.length === 0 ? undefined : body);
    return;
  }
  to.statusCode = status;
  for (const [name, value] of Object.entries(headers)) to.setHeader(name, value ?? '');
  to.end(body);
}
