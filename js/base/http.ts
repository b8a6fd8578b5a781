/** Parts of the middleware for HTTP: how it reads a target, and how it refuses a request. */

import type { Answer } from './answer.js';

/** An error of HTTP as a document of RFC 9457. @internal */
export interface Problem {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly type?: string;
}

/**
 * The path and the query of a request's target; undefined if it names no path, as `*` and `host:port` do not (RFC 9112,
 * section 3.2). Nothing in it can throw, whatever the client has written.
 *
 * @internal
 */
export function targetOf(
  url: string | undefined,
): { readonly path: string; readonly query: URLSearchParams } | undefined {
  if (url?.startsWith('/') !== true) return undefined;
  const [path = '/', query] = url.split(/\?(.*)/s, 2);
  return { path, query: new URLSearchParams(query) };
}

/** No cache may keep such an answer, since it answers one request only. */
const PROBLEM_HEADERS = {
  'Content-Type': 'application/problem+json',
  'Cache-Control': 'no-store',
} as const;

/** The answer that a problem is. @internal */
export function refusal(
  problem: Problem,
  headers: Readonly<Record<string, string>> = {},
): Answer & { readonly headers: Readonly<Record<string, string>> } {
  const all = { ...PROBLEM_HEADERS, ...headers };
  return { status: problem.status, headers: all, body: JSON.stringify(problem) };
}
