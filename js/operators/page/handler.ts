/** Answers the requests of the page. */

import type { ServerResponse } from 'node:http';
import { inspect } from 'node:util';
import { onAbort } from '../../base/abort.js';
import { type Answer, respond, send, toResponse } from '../../base/answer.js';
import { refusal } from '../../base/http.js';
import { type Asked, askedByFetch, askedByNode } from './asked.js';
import { Feed } from './feed.js';
import { fileOf } from './files.js';
import {
  type LockUiFetchOptions,
  type LockUiOptions,
  type LockUiRequest,
  type UiSettings,
  uiSettingsOf,
} from './options.js';
import { problem, refusalOf, release } from './release.js';
import { Stream } from './stream.js';

/** Everything that the page loads comes from the same place, and nothing in it is a script but its files. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS: Readonly<Record<string, string>> = {
  'Cache-Control': 'no-store, no-transform',
  'Content-Security-Policy': POLICY,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Accel-Buffering': 'no',
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
};

/**
 * The page for operators, as a handler of requests. It has no login: put your own in front of it.
 *
 * @example
 * ```ts
 * import { createServer } from 'node:http'
 * import { lockUi, type LockUi } from 'holdfast/ui'
 *
 * const ui: LockUi = lockUi({ locks })
 * const server = createServer((request, response) => ui(request, response))
 * ui.close()
 * ```
 */
export interface LockUi {
  /** Answers a request. `next` gets what is not for the page; without it the answer is 404. */
  (request: LockUiRequest, response: ServerResponse, next?: (error?: unknown) => void): void;
  /** Ends the streams of all open pages, so that the server can close. The manager stays open. */
  close(): void;
}

/**
 * Makes the page for operators: it shows who holds which locks and who waits, as it changes. The result is a middleware of
 * Express and Nest, and a handler for Fastify and `node:http`. It has no login of its own.
 *
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import express from 'express'
 * import { lockUi } from 'holdfast/ui'
 *
 * const app = express()
 * // behind the login of the app: whoever gets through sees all locks
 * app.use('/admin/locks', lockUi({ locks }))
 * ```
 */
export function lockUi(options: LockUiOptions): LockUi {
  const settings = uiSettingsOf(options, 'lockUi');
  const page = new Page(settings);
  const streams = new Set<ServerResponse>();
  const handle = (
    request: LockUiRequest,
    response: ServerResponse,
    next?: (error?: unknown) => void,
  ) => {
    const judging = page.answer(askedByNode(request, settings.allowRelease)).then((answer) => {
      if (answer?.body instanceof ReadableStream && !response.destroyed) {
        streams.add(response);
        response.on('close', () => streams.delete(response));
      }
      return answer ?? (next === undefined ? NOT_FOUND : undefined);
    });
    respond(response, next ?? ((error) => fail(response, error)), judging);
  };
  const close = () => {
    page.close();
    // At once: a server may destroy its connections next, which a browser would take for an error.
    for (const response of streams) response.end();
  };
  return Object.assign(handle, { close });
}

/** Answers a request whose handling failed, where no framework does. */
function fail(response: ServerResponse, error: unknown): void {
  // The answer leaves the message out: it may be one of the app's own, for its operators.
  process.emitWarning(error instanceof Error ? error : new Error(`lockUi: ${inspect(error)}`));
  const failed = problem(500, 'Failed', 'the log of this server has the error');
  send(response, refusal(failed, HEADERS));
}

/**
 * The page for operators, as a handler of the Fetch API. It has no login: put your own in front of it.
 *
 * @example
 * ```ts
 * import { fetchLockUi, type LockUiFetch } from 'holdfast/ui'
 *
 * const ui: LockUiFetch = fetchLockUi({ locks })
 * const answer = await ui(new Request('http://localhost/'))
 * console.log(answer.status) // 200
 * ui.close()
 * ```
 */
export interface LockUiFetch {
  /** Answers a request; what is not for the page with 404. Rejects with what `allowRelease` throws. */
  (request: Request): Promise<Response>;
  /** Ends the streams of all open pages, so that the server can close. The manager stays open. */
  close(): void;
}

/**
 * Makes the page for operators as `lockUi` does, but as a handler from a `Request` to a `Response`: for Hono, route handlers of
 * Next.js, Elysia, `Bun.serve` and `Deno.serve`. It has no login of its own.
 *
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import { fetchLockUi } from 'holdfast/ui'
 *
 * const ui = fetchLockUi({ locks, path: '/admin/locks' })
 * // Hono: app.all('/admin/locks/*', login, (c) => ui(c.req.raw))
 * // Bun: Bun.serve({ routes: { '/admin/locks/*': ui } })
 * const answer = await ui(new Request('http://localhost/admin/locks/'))
 * console.log(answer.headers.get('content-type')) // text/html; charset=utf-8
 * ui.close()
 * ```
 */
export function fetchLockUi(options: LockUiFetchOptions): LockUiFetch {
  const settings = uiSettingsOf(options, 'fetchLockUi');
  const page = new Page(settings);
  const handle = async (request: Request) => {
    const asked = askedByFetch(request, settings.allowRelease);
    return toResponse((await page.answer(asked, request.signal)) ?? NOT_FOUND);
  };
  return Object.assign(handle, { close: () => page.close() });
}

const NOT_FOUND = refusal(problem(404, 'Not found', 'the page of holdfast has no such file'));

/** The page of one manager. */
class Page {
  readonly #settings: Omit<UiSettings, 'allowRelease'>;
  readonly #feed: Feed;
  readonly #end = () => this.close();

  constructor(settings: Omit<UiSettings, 'allowRelease'>) {
    this.#settings = settings;
    this.#feed = new Feed(settings);
    settings.locks.once('close', this.#end);
  }

  close(): void {
    this.#settings.locks.off('close', this.#end);
    this.#feed.close();
  }

  /** The answer to a request; undefined if it is not for the page. `left` is aborted when the client has gone. */
  async answer(asked: Asked, left?: AbortSignal): Promise<Answer | undefined> {
    const path = this.#pathOf(asked);
    const file = fileOf(path === '/' ? 'page.html' : path.slice(1));
    if (path !== '' && file === undefined && !['/events', '/release'].includes(path)) {
      return undefined;
    }
    const answer = await this.#answerAt(path, asked, left);
    return { ...answer, headers: { ...HEADERS, ...answer.headers } };
  }

  async #answerAt(path: string, asked: Asked, left?: AbortSignal): Promise<Answer> {
    if (path === '/release') return this.#release(asked);
    if (asked.method !== 'GET') return refusal(problem(405, 'Not allowed', 'the page answers GET'));
    if (path === '/events') return this.#events(asked, left);
    if (path === '') return redirect(asked);
    const { type = '', text = '' } = fileOf(path === '/' ? 'page.html' : path.slice(1)) ?? {};
    return { status: 200, headers: { 'Content-Type': type }, body: text };
  }

  /** The path below the place where the page is mounted: empty for that place itself without a slash at its end. */
  #pathOf({ path: own, originalPath }: Asked): string {
    const { path } = this.#settings;
    if (path !== '') return own.startsWith(path) ? own.slice(path.length) : own;
    // Express says / for both; the files of the page are found only below the one with the slash.
    return own === '/' && !originalPath.endsWith('/') ? '' : own;
  }

  async #events(asked: Asked, left?: AbortSignal): Promise<Answer> {
    const release = await asked.mayRelease();
    const feed = this.#feed;
    if (feed.isFull) {
      const detail = 'too many pages are open: close one';
      return refusal(problem(503, 'Full', detail), { 'Retry-After': '30' });
    }
    const { title } = this.#settings;
    const stream: Stream = new Stream(JSON.stringify({ title, release }), {
      catchUp: () => feed.catchUp(stream),
      closed: () => feed.remove(stream),
    });
    feed.add(stream);
    // Some servers only abort the request, and read the body no further.
    if (left !== undefined) onAbort(left, () => stream.close());
    if (left?.aborted === true) stream.close();
    const headers = { 'Content-Type': 'text/event-stream; charset=utf-8' };
    return { status: 200, headers, body: stream.body };
  }

  async #release(asked: Asked): Promise<Answer> {
    if (!(await asked.mayRelease())) {
      const detail = 'this page only shows locks: start it with the permission to release them';
      return refusal(problem(403, 'Read-only', detail));
    }
    const refused = refusalOf(asked) ?? (await release(this.#settings.locks, asked));
    if (refused !== null) return refusal(refused);
    this.#feed.lookNow();
    const headers = { 'Content-Type': 'application/json' };
    return { status: 200, headers, body: '{"released":true}' };
  }
}

function redirect({ originalPath }: Asked): Answer {
  const last = originalPath.slice(originalPath.lastIndexOf('/') + 1);
  return { status: 308, headers: { Location: `./${last}/` } };
}
