/** Compressors, by each of the ways in which those of Express work. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { createBrotliCompress, createGzip, type Gzip } from 'node:zlib';

type Middleware = (request: IncomingMessage, response: ServerResponse, next: () => void) => void;
type Call = (...args: unknown[]) => unknown;

function codingOf(request: IncomingMessage): 'br' | 'gzip' | undefined {
  const accepted = request.headers['accept-encoding'] ?? '';
  return accepted.includes('br') ? 'br' : accepted.includes('gzip') ? 'gzip' : undefined;
}

const compressor = (coding: 'br' | 'gzip') =>
  (coding === 'br' ? createBrotliCompress() : createGzip()) as Gzip;

/** Replaces `write`, `end` and `writeHead`, and, as some do, `on`: whoever listens behind it hears its own stream. */
function wrap(replacesOn: boolean): Middleware {
  return (request, response, next) => {
    const coding = codingOf(request);
    if (coding === undefined) return next();
    const own = { ...pick(response) };
    const stream = compressor(coding);
    let status: number | undefined;
    let started = false;
    const start = () => {
      if (started) return;
      started = true;
      response.setHeader('Content-Encoding', coding);
      response.removeHeader('Content-Length');
      own.writeHead.call(response, status ?? response.statusCode);
    };
    stream.on('data', (chunk) => own.write.call(response, chunk));
    stream.on('end', () => own.end.call(response));
    Object.assign(response, {
      writeHead(given: number, headers: OutgoingHttpHeaders = {}) {
        for (const [name, value] of Object.entries(headers)) response.setHeader(name, value ?? '');
        status = given;
        return response;
      },
      write(...args: unknown[]) {
        start();
        return (stream.write as Call)(...args);
      },
      end(...args: unknown[]) {
        start();
        return (stream.end as Call)(...args);
      },
    });
    if (replacesOn)
      Object.assign(response, { on: (...args: unknown[]) => (stream.on as Call)(...args) });
    return next();
  };
}

/** Changes the headers when Node, or a handler, writes the head. */
const atHead: Middleware = (request, response, next) => {
  const coding = codingOf(request);
  if (coding === undefined) return next();
  const own = { ...pick(response) };
  const stream = compressor(coding);
  stream.on('data', (chunk) => own.write.call(response, chunk));
  stream.on('end', () => own.end.call(response));
  Object.assign(response, {
    writeHead(...args: unknown[]) {
      response.setHeader('Content-Encoding', coding);
      response.removeHeader('Content-Length');
      return own.writeHead.apply(response, args);
    },
    write: (...args: unknown[]) => (stream.write as Call)(...args),
    end: (...args: unknown[]) => (stream.end as Call)(...args),
  });
  return next();
};

function pick(response: ServerResponse): Record<'end' | 'write' | 'writeHead', Call> {
  const { end, write, writeHead } = response;
  return { end, write, writeHead } as Record<'end' | 'write' | 'writeHead', Call>;
}

export const COMPRESSORS: Readonly<Record<string, Middleware>> = {
  'at the first piece': wrap(false),
  'at the first piece, with listeners of its own': wrap(true),
  'at the head': atHead,
};
