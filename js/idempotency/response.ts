/** Holds the answer of a handler back until it is known what is sent. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { argumentError } from '../base/errors.js';
import type { Answer } from './attempt.js';

/**
 * Collects what is written to `response`. When it is ended, `decide` gets the answer, and what it returns is sent.
 *
 * @internal
 */
export function holdBack(
  response: ServerResponse,
  decide: (answer: Answer) => Promise<Answer>,
): void {
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
      // Fastify answers once more when a handler has ended and nothing was sent yet.
      if (ended) return response;
      response.statusCode = status;
      if (typeof rest[0] === 'string') response.statusMessage = rest[0];
      setAll(
        response,
        rest.find((each) => typeof each === 'object'),
      );
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
      const held = { status: response.statusCode, headers, body };
      void decide(held).then((answer) => {
        Object.assign(response, { end, flushHeaders, write, writeHead });
        if (answer !== held) replace(response, answer);
        end.call(response, answer.body, 'utf8', callback(args));
      });
      return response;
    },
  });
}

/** Puts another answer into the place of the one that was held back. */
function replace(response: ServerResponse, { status, headers }: Answer): void {
  // These describe the former body. Node counts the bytes of the new one.
  for (const name of ['Content-Length', 'Content-Type', 'ETag']) response.removeHeader(name);
  response.statusCode = status;
  setAll(response, headers);
}

function setAll(response: ServerResponse, headers: unknown): void {
  for (const [name, value] of pairsOf(headers)) response.setHeader(name, value);
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
