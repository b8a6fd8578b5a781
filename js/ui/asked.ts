/** What is asked of the page and what it answers, whichever kind of server is between. */

import type { ServerResponse } from 'node:http';
import { PROBLEM_HEADERS, type Problem } from '../base/http.js';
import type { LockUiRequest } from './options.js';

/** A request to the page. @internal */
export interface Asked {
  readonly method: string;
  /** The path, as the router has left it. */
  readonly path: string;
  /** The path as the client sent it. */
  readonly originalPath: string;
  /** The name of this server, by which the client has found it. */
  readonly host: string | undefined;
  header(name: string): string | undefined;
  /** Whether the option `allowRelease` permits a release; it gets the request of the server. */
  mayRelease(): Promise<boolean>;
}

/** @internal */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | ReadableStream<Uint8Array>;
}

type AllowRelease<R> = boolean | ((request: R) => boolean | Promise<boolean>);

/** A request of node:http, or of a framework on it. @internal */
export function askedByNode(request: LockUiRequest, allow: AllowRelease<LockUiRequest>): Asked {
  const { headers, method = 'GET', url } = request;
  return {
    method,
    path: beforeQuery(url),
    originalPath: beforeQuery(request.originalUrl ?? url),
    host: headers.host,
    header: (name) => headers[name]?.toString(),
    mayRelease: () => permits(allow, request),
  };
}

/** A request of the Fetch API. @internal */
export function askedByFetch(request: Request, allow: AllowRelease<Request>): Asked {
  const { headers, method } = request;
  const { host, pathname } = new URL(request.url);
  return {
    method,
    path: pathname,
    originalPath: pathname,
    host: headers.get('host') ?? host,
    header: (name) => headers.get(name) ?? undefined,
    mayRelease: () => permits(allow, request),
  };
}

async function permits<R>(allow: AllowRelease<R>, request: R): Promise<boolean> {
  return typeof allow === 'function' ? (await allow(request)) === true : allow;
}

function beforeQuery(url = '/'): string {
  return url.split('?', 1)[0] ?? '/';
}

/** @internal */
export function refusal(problem: Problem, headers: Readonly<Record<string, string>> = {}): Answer {
  const all = { ...PROBLEM_HEADERS, ...headers };
  return { status: problem.status, headers: all, body: JSON.stringify(problem) };
}

/** Sends an answer by a response of node:http. @internal */
export function send(response: ServerResponse, { status, headers, body }: Answer): void {
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  if (typeof body === 'object') void pump(body, response);
  else response.end(body);
}

/** Sends a stream at the pace of its reader, and cancels it when the reader has gone. */
async function pump(body: ReadableStream<Uint8Array>, response: ServerResponse): Promise<void> {
  const reader = body.getReader();
  let goOn = () => {};
  response.on('drain', () => goOn());
  response.on('close', () => {
    reader.cancel().catch(() => {});
    goOn();
  });
  // A reader that reset its connection; 'close' follows.
  response.on('error', () => {});
  // Its end must be noticed also while the reader takes nothing.
  reader.closed.then(
    () => goOn(),
    () => response.destroy(),
  );
  response.flushHeaders();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!response.write(value) && !response.destroyed) {
        await new Promise<void>((drained) => {
          goOn = drained;
        });
      }
    }
    response.end();
  } catch {
    response.destroy();
  }
}

/** @internal */
export function toResponse({ status, headers, body }: Answer): Response {
  return new Response(body ?? null, { status, headers });
}
