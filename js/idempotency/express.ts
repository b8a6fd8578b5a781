/** Idempotency for Express, and for other servers whose middleware is called with `next`. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { refuse } from '../internal/http.js';
import { type Answer, type Attempt, judge } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

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
        capture(response, verdict.attempt);
      }
      return next();
    }, next);
  };
}

function replay(response: ServerResponse, { status, headers, body }: Answer): void {
  response.writeHead(status, headers as OutgoingHttpHeaders).end(body);
}

/** Holds the answer back until it is kept: who has got it can rely on getting it again. */
function capture(response: ServerResponse, attempt: Attempt): void {
  const chunks: Buffer[] = [];
  const collect = (chunk: unknown, encoding: unknown) => {
    if (typeof chunk === 'string') {
      const kind = typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8';
      chunks.push(Buffer.from(chunk, kind));
    } else if (chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
  };
  const callback = (args: readonly unknown[]) =>
    args.find((each): each is () => void => typeof each === 'function');
  const { end, flushHeaders, write, writeHead } = response;
  let ended = false;
  Object.assign(response, {
    flushHeaders: () => {},
    writeHead(status: number, ...rest: unknown[]) {
      response.statusCode = status;
      setAll(response, rest.find((each) => typeof each === 'object') as OutgoingHttpHeaders);
      return response;
    },
    write(chunk: unknown, ...rest: unknown[]) {
      collect(chunk, rest[0]);
      const done = callback(rest);
      if (done !== undefined) process.nextTick(done);
      return true;
    },
    end(...args: unknown[]) {
      if (ended) return response;
      ended = true;
      collect(args[0], args[1]);
      const body = Buffer.concat(chunks);
      const headers = response.getHeaders() as Answer['headers'];
      void attempt.finish({ status: response.statusCode, headers, body }).then(() => {
        Object.assign(response, { end, flushHeaders, write, writeHead });
        end.call(response, body, 'utf8', callback(args));
      });
      return response;
    },
  });
}

function setAll(response: ServerResponse, headers: OutgoingHttpHeaders | undefined): void {
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (value !== undefined) response.setHeader(name, value);
  }
}
