/** Idempotency for handlers of the Fetch API, from a `Request` to a `Response`. */

import { onAbort } from '../../base/abort.js';
import { toResponse, WITHOUT_BODY } from '../../base/answer.js';
import { show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import { type Attempt, type Idempotency, judge } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

/**
 * Handles requests of the Fetch API by `handle`, which is called once for each `Idempotency-Key`, and gets `undefined` for
 * a request without one. `scope` names the caller of this request, in place of the option `scope`.
 *
 * @example
 * ```ts
 * import { fetchIdempotency, memoryStore } from 'holdfast/idempotency'
 * import type { FetchIdempotency } from 'holdfast/idempotency'
 *
 * const idempotent: FetchIdempotency = fetchIdempotency({ locks, store: memoryStore() })
 * const request = new Request('http://localhost/', { method: 'POST', headers: { 'idempotency-key': 'a' } })
 * const answer = await idempotent(request, (idempotency) => new Response(idempotency?.key))
 * console.log(await answer.text()) // a
 * ```
 */
export type FetchIdempotency = (
  request: Request,
  handle: (idempotency: Idempotency | undefined) => Response | Promise<Response>,
  scope?: string,
) => Promise<Response>;

/**
 * Idempotency as `expressIdempotency` has it, for Hono, route handlers of Next.js, Elysia, `Bun.serve` and `Deno.serve`. Call
 * the result before anything reads the request's body; `handle` can read it. The end of an answer waits until the answer is
 * stored; it is read and stored whether or not its client reads it. If `handle` throws, or returns what is no `Response` that
 * can be read, there is no answer to keep: a repeat is answered as after a crash.
 *
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import { fetchIdempotency, memoryStore } from 'holdfast/idempotency'
 *
 * const idempotent = fetchIdempotency({ locks, store: memoryStore() })
 * // app/payments/route.ts of Next.js; in Hono: app.post('/payments', (c) => idempotent(c.req.raw, () => pay(c)))
 * const POST = (request: Request) =>
 *   idempotent(request, async () => Response.json({ paid: await request.json() }, { status: 201 }))
 * const headers = { 'idempotency-key': '"b7f1"', 'content-type': 'application/json' }
 * const post = () => POST(new Request('http://localhost/payments', { method: 'POST', headers, body: '5' }))
 * const answers = [await (await post()).text(), await (await post()).text()]
 * console.log(answers) // [ '{"paid":5}', '{"paid":5}' ]
 * ```
 */
export function fetchIdempotency(options: IdempotencyOptions): FetchIdempotency {
  const settings = settingsOf(options, 'fetchIdempotency');
  return async (request, handle, scope) => {
    const by = scope === undefined ? settings.scope : () => scope;
    const found = await judge(settings, () => readRequest(request), request.method, by);
    if (found === undefined) return handle(undefined);
    if (!('key' in found)) return toResponse(found);
    const left = () => found.left();
    const forget = onAbort(request.signal, left);
    if (request.signal.aborted) left();
    let copy: Copy;
    try {
      copy = new Copy(readable(await handle(found)), settings.maxResponseSize, found, forget);
    } catch (error) {
      forget();
      await found.release();
      throw error;
    }
    // An answer without a body, or whose client has gone, has no reader, but a repeat asks for it.
    if (request.signal.aborted || copy.response.body === null) await copy.kept;
    if (request.signal.aborted) await copy.end();
    return copy.response;
  };
}

/** The answer of a handler, if it can be sent. */
function readable(given: unknown): Response {
  const { status = 0, headers, body, bodyUsed } = (given ?? {}) as Partial<Response>;
  const isRead = bodyUsed === true || body?.locked === true;
  if (headers !== undefined && status >= 200 && !isRead) return given as Response;
  const what = isRead ? 'a Response whose body is read already' : 'a Response of an error';
  const message = `the handler of fetchIdempotency must return a Response, got ${headers === undefined ? show(given) : what}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** The parts of a request that idempotency depends on. The handler gets the body unread. */
async function readRequest(request: Request): Promise<IdempotentRequest> {
  const { method, url, headers } = request;
  const { pathname, search } = new URL(url);
  const read = { method, url: pathname + search, headers: Object.fromEntries(headers) };
  if (!headers.has('idempotency-key')) return read;
  if (request.bodyUsed) {
    const message =
      'the body of the request was read already: call the result of fetchIdempotency before that';
    throw new TypeError(message);
  }
  return { ...read, body: Buffer.from(await request.clone().arrayBuffer()) };
}

/**
 * An answer that passes to its client, and is kept at its end. It is read ahead as far as it can be kept: an answer that
 * nobody reads, as after a timeout has answered, must not keep its lock.
 */
class Copy {
  readonly response: Response;
  /** Settles when the answer is kept, or has failed. */
  kept = Promise.resolve();
  readonly #given: Response;
  readonly #attempt: Attempt;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #forget: () => void;
  /** Undefined if it is too large to be kept. */
  #chunks: Uint8Array[] | undefined = [];
  #room: number;
  /** It was read to its end, or its client has left. */
  #over = false;
  #left = false;

  constructor(given: Response, limit: number, attempt: Attempt, forget: () => void) {
    this.#given = given;
    this.#attempt = attempt;
    this.#room = limit;
    this.#forget = forget;
    this.#reader = given.body?.getReader();
    const body = new ReadableStream<Uint8Array>(
      {
        start: (client) => {
          this.kept = this.#readAhead(client);
        },
        pull: (client) => this.#pass(client),
        cancel: (reason) => this.#leave(reason),
      },
      { highWaterMark: 0 },
    );
    const { status, statusText, headers } = given;
    const bare = this.#reader === undefined || WITHOUT_BODY.includes(status);
    this.response = new Response(bare ? null : body, { status, statusText, headers });
  }

  /** Ends the reading of an answer whose client has gone. */
  async end(reason?: unknown): Promise<void> {
    await this.#reader?.cancel(reason).catch(() => {});
  }

  async #readAhead(client: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      while (!this.#over && this.#chunks !== undefined) await this.#read(client);
      if (this.#left) return;
      await this.#keep();
      if (this.#over) client.close();
    } catch (error) {
      this.#over = true;
      this.#forget();
      await Promise.all([this.end(error), this.#attempt.release()]);
      client.error(error);
    }
  }

  /** Passes the rest of an answer that is too large to be kept, at the pace of its client. */
  async #pass(client: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    await this.kept;
    if (this.#over) return;
    await this.#read(client);
    if (this.#over && !this.#left) client.close();
  }

  async #read(client: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    const { done = true, value } = (await this.#reader?.read()) ?? {};
    if (done) this.#over = true;
    if (this.#over || value === undefined) return;
    this.#room -= value.length;
    if (this.#room < 0) this.#chunks = undefined;
    // The server may use its memory for other bytes.
    this.#chunks?.push(value.slice());
    client.enqueue(value);
  }

  async #keep(): Promise<void> {
    this.#forget();
    const { status, statusText, headers } = this.#given;
    const message = statusText || undefined;
    const body = this.#chunks && Buffer.concat(this.#chunks);
    await this.#attempt.answered({ status, message, headers: Object.fromEntries(headers), body });
  }

  /** The client reads no further. An answer that was read to its end is kept nevertheless. */
  async #leave(reason: unknown): Promise<void> {
    if (this.#over) return;
    [this.#over, this.#left] = [true, true];
    this.#forget();
    await Promise.all([this.end(reason), this.#attempt.release()]);
  }
}
