/** Idempotency for Express, and for other servers whose middleware is called with `next`. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { refuse } from '../base/http.js';
import { type Answer, judge } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';
import { holdBack } from './response.js';

/**
 * A middleware for Express that handles each `Idempotency-Key` once. Register it after the middleware that parses
 * bodies. Handlers get `request.idempotency`. Each answer is stored as a whole, so do not use it for long streams.
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
    judge(settings, request).then((verdict) => {
      if (verdict.kind === 'refuse') return refuse(response, verdict.problem, verdict.headers);
      if (verdict.kind === 'replay') return replay(response, verdict.answer);
      if (verdict.kind === 'run') {
        Object.assign(request, { idempotency: verdict.attempt });
        holdBack(response, async (answer) => {
          await verdict.attempt.finish(answer);
          return answer;
        });
      }
      return next();
    }, next);
  };
}

function replay(response: ServerResponse, { status, headers, body }: Answer): void {
  response.writeHead(status, headers as OutgoingHttpHeaders).end(body);
}
