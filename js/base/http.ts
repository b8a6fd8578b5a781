/** What the middleware for HTTP has in common: the answers of Express, Fastify and node:http. */

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

/** A reply of Fastify. */
interface Reply {
  code(status: number): Reply;
  header(name: string, value: string): Reply;
  send(body: string): unknown;
}

/** A response of Express or node:http. */
interface Response {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

/** No cache may keep such an answer, since it answers one request only. @internal */
export const PROBLEM_HEADERS = {
  'Content-Type': 'application/problem+json',
  'Cache-Control': 'no-store',
} as const;

/** Answers with a problem, by Fastify's reply or by the response of Express or node:http. @internal */
export function refuse(
  response: unknown,
  problem: Problem,
  headers: Readonly<Record<string, string>> = {},
): void {
  const body = JSON.stringify(problem);
  const all = { ...PROBLEM_HEADERS, ...headers };
  if (typeof (response as Reply).code === 'function') {
    const reply = response as Reply;
    for (const [name, value] of Object.entries(all)) reply.header(name, value);
    reply.code(problem.status).send(body);
    return;
  }
  const plain = response as Response;
  plain.statusCode = problem.status;
  for (const [name, value] of Object.entries(all)) plain.setHeader(name, value);
  plain.end(body);
}
