/** Requests for the page, in one form for all kinds of servers. */

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
    mayRelease: () => mayRelease(allow, request),
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
    mayRelease: () => mayRelease(allow, request),
  };
}

async function mayRelease<R>(allow: AllowRelease<R>, request: R): Promise<boolean> {
  return typeof allow === 'function' ? (await allow(request)) === true : allow;
}

function beforeQuery(url = '/'): string {
  return url.split('?', 1)[0] ?? '/';
}
