/** The answers that are given in place of a handler's: those that were kept, and refusals. */

import type { OutgoingHttpHeaders } from 'node:http';
import type { Answer } from '../../base/answer.js';
import { refusal as asAnswer } from '../../base/http.js';
import { accepts, decode } from './coding.js';

/** The answer of a handler. @internal */
export interface Given {
  readonly status: number;
  readonly message?: string | undefined;
  readonly headers: OutgoingHttpHeaders;
  /** Undefined if it was too large to be kept. */
  readonly body: Buffer | undefined;
}

/** An answer as it is stored: of one that was too large only the status. @internal */
export interface Kept {
  readonly status: number;
  readonly message?: string | undefined;
  readonly headers?: OutgoingHttpHeaders;
  /** In base64. */
  readonly body?: string;
  /** Whether its content coding was chosen for the client, so another client may need another one. */
  readonly negotiated?: true;
}

/** Headers of a connection, of a moment, or of a session, which no repeated answer has. */
const NOT_KEPT =
  /^(connection|content-length|date|keep-alive|set-cookie|trailer|transfer-encoding|upgrade)$/i;

/** `accepted` is the header Accept-Encoding of the request. @internal */
export function kept({ status, message, headers, body }: Given, accepted: unknown): Kept {
  if (body === undefined) return { status };
  const some = Object.entries(headers).filter(([name]) => !NOT_KEPT.test(name));
  return {
    status,
    message,
    headers: Object.fromEntries(some),
    body: body.toString('base64'),
    ...(accepts(accepted, headers['content-encoding']) ? { negotiated: true } : {}),
  };
}

/** The answer to a repeat, of which `accepted` is the header Accept-Encoding. @internal */
export async function replayed(stored: Kept, accepted: unknown): Promise<Answer> {
  const { status, message, headers, body, negotiated } = stored;
  if (body === undefined) return refusal('large', ` (it was answered ${status})`);
  const all = { ...headers, 'idempotency-replayed': 'true' };
  const given = { status, message, headers: all, body: Buffer.from(body, 'base64'), copy: true };
  const fits = negotiated !== true || accepts(accepted, headers?.['content-encoding']);
  return fits ? given : decode(given);
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
      'the header Idempotency-Key must be one string of 1 to 255 characters of ASCII in double quotes; without quotes it may have neither a space nor a quote',
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
  return asAnswer(problem, what === 'outstanding' ? { 'Retry-After': '1' } : {});
}
