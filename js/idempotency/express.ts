/** Idempotency for Express, and for other servers whose middleware is called with `next`. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { argumentError } from '../api/errors.js';
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
      if (typeof rest[0] === 'string') response.statusMessage = rest[0];
      for (const [name, value] of pairsOf(rest.find((each) => typeof each === 'object'))) {
        response.setHeader(name, value);
      }
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
      checkStatus(response.statusCode);
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

/** The headers that `writeHead` was given: by name, or as a list of names and values in turn. */
function pairsOf(headers: unknown): [string, string | number | string[]][] {
  if (!Array.isArray(headers)) {
    const given = Object.entries((headers ?? {}) as OutgoingHttpHeaders);
    return given.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]));
  }
  const names = headers.filter((_, i) => i % 2 === 0);
  return names.map((name, i) => [name, headers[2 * i + 1]]);
}

/** As Node does, but while the handler that is to blame still runs. */
function checkStatus(status: number): void {
  if (Number.isInteger(status) && status >= 100 && status <= 999) return;
  throw argumentError('ERR_OUT_OF_RANGE', `Invalid status code: ${status}`);
}
