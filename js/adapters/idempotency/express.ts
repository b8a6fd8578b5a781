/** Idempotency for Express, and for other servers whose middleware is called with `next`. */

import type { ServerResponse } from 'node:http';
import { respond } from '../../base/answer.js';
import { judgeByNode } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

/**
 * A middleware for Express that handles each `Idempotency-Key` once. Register it after the middleware that parses
 * bodies. Handlers get `request.idempotency`. Answers pass unchanged, and a copy is stored.
 *
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import express from 'express'
 * import { expressIdempotency, memoryStore } from 'holdfast/idempotency'
 *
 * const app = express()
 * app.use(express.json(), expressIdempotency({ locks, store: memoryStore() }))
 * app.post('/payments', (_request, response) => response.status(201).json({ paid: true }))
 * ```
 */
export function expressIdempotency(
  options: IdempotencyOptions,
): (request: IdempotentRequest, response: ServerResponse, next: (error?: unknown) => void) => void {
  const settings = settingsOf(options, 'expressIdempotency');
  return (request, response, next) => {
    respond(response, next, judgeByNode(settings, request, response));
  };
}
