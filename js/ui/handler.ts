/** Answers the requests of the page. */

import type { ServerResponse } from 'node:http';
import { inspect } from 'node:util';
import { refuse } from '../base/http.js';
import { Feed } from './feed.js';
import { fileOf } from './files.js';
import {
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
  const settings = uiSettingsOf(options);
  const feed = new Feed(settings.locks, settings.interval);
  settings.locks.once('close', () => feed.close());
  const handle = (
    request: LockUiRequest,
    response: ServerResponse,
    next?: (error?: unknown) => void,
  ) => {
    answer(settings, feed, request, response, next).catch((error: unknown) => {
      if (next !== undefined) return next(error);
      // The answer leaves the message out: it may be one of the app's own, for its operators.
      process.emitWarning(error instanceof Error ? error : new Error(`lockUi: ${inspect(error)}`));
      if (response.headersSent) response.destroy();
      else refuse(response, problem(500, 'Failed', 'the log of this server has the error'));
    });
  };
  return Object.assign(handle, { close: () => feed.close() });
}

async function answer(
  settings: UiSettings,
  feed: Feed,
  request: LockUiRequest,
  response: ServerResponse,
  next?: (error?: unknown) => void,
): Promise<void> {
  const path = pathOf(settings, request);
  const file = fileOf(path === '/' ? 'page.html' : path.slice(1));
  if (path !== '' && file === undefined && !['/events', '/release'].includes(path)) {
    if (next !== undefined) return next();
    return refuse(response, problem(404, 'Not found', 'the page of holdfast has no such file'));
  }
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
  if (path === '/release') return answerRelease(settings, feed, request, response);
  if (request.method !== 'GET') {
    return refuse(response, problem(405, 'Not allowed', 'the page answers GET'));
  }
  if (path === '/events') return answerEvents(settings, feed, request, response);
  if (path === '') return redirect(request, response);
  response.writeHead(200, { 'Content-Type': file?.type }).end(file?.text);
}

/** The path below the place where the page is mounted: empty for that place itself without a slash at its end. */
function pathOf({ path }: UiSettings, request: LockUiRequest): string {
  const own = beforeQuery(request.url);
  if (path !== '') return own.startsWith(path) ? own.slice(path.length) : own;
  // Express says / for both; the files of the page are found only below the one with the slash.
  return own === '/' && !beforeQuery(request.originalUrl ?? '/').endsWith('/') ? '' : own;
}

function redirect(request: LockUiRequest, response: ServerResponse): void {
  const path = beforeQuery(request.originalUrl ?? request.url);
  const last = path.slice(path.lastIndexOf('/') + 1);
  response.writeHead(308, { Location: `./${last}/` }).end();
}

function beforeQuery(url = '/'): string {
  return url.split('?', 1)[0] ?? '/';
}

async function answerEvents(
  settings: UiSettings,
  feed: Feed,
  request: LockUiRequest,
  response: ServerResponse,
): Promise<void> {
  const release = await mayRelease(settings, request);
  if (feed.isFull) {
    const detail = 'too many pages are open: close one';
    return refuse(response, problem(503, 'Full', detail), { 'Retry-After': '30' });
  }
  const stream: Stream = new Stream(
    response,
    () => feed.catchUp(stream),
    () => feed.remove(stream),
  );
  const { title } = settings;
  stream.send('hello', JSON.stringify({ title, release }));
  feed.add(stream);
}

async function answerRelease(
  settings: UiSettings,
  feed: Feed,
  request: LockUiRequest,
  response: ServerResponse,
): Promise<void> {
  if (!(await mayRelease(settings, request))) {
    const detail = 'this page only shows locks: start it with the permission to release them';
    return refuse(response, problem(403, 'Read-only', detail));
  }
  const refusal = refusalOf(request) ?? (await release(settings.locks, request));
  if (refusal !== null) return refuse(response, refusal);
  feed.lookNow();
  response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"released":true}');
}

async function mayRelease({ allowRelease }: UiSettings, request: LockUiRequest): Promise<boolean> {
  return typeof allowRelease === 'function' ? (await allowRelease(request)) === true : allowRelease;
}
