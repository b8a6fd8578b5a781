/** Idempotency for handlers of the Fetch API, from a `Request` to a `Response`. */

import { onAbort } from '../base/abort.js';
import { toResponse, WITHOUT_BODY } from '../base/answer.js';
import { type Attempt, type Idempotency, judge } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

/**
 * Handles requests of the Fetch API by `handle`, which is called once for each `Idempotency-Key`, and gets `undefined` for
 * a request without one.
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
) => Promise<Response>;

/**
 * Idempotency as `expressIdempotency` has it, for Hono, route handlers of Next.js, Elysia, `Bun.serve` and `Deno.serve`. Call
 * the result before anything reads the request's body; `handle` can read it. The end of an answer waits until the answer is
 * stored. If `handle` throws, there is no answer to keep: a repeat is answered as after a crash.
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
  return async (request, handle) => {
    const found = await judge(settings, () => readRequest(request), request.method);
    if (found === undefined) return handle(undefined);
    if (!('key' in found)) return toResponse(found);
    const left = () => found.left();
    const forget = onAbort(request.signal, left);
    if (request.signal.aborted) left();
    let response: Response;
    try {
      response = await handle(found);
    } catch (error) {
      forget();
      await found.release();
      throw error;
    }
    const copy = new Copy(response, settings.maxResponseSize, found, forget);
    // Nobody reads an answer without a body, or one whose client has gone, but a repeat asks for it.
    if (request.signal.aborted || copy.response.body === null) await copy.finish();
    return copy.response;
  };
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
  const bytes = Buffer.from(await request.clone().arrayBuffer());
  return { ...read, body: bodyOf(bytes, headers.get('content-type') ?? '') };
}

/** A body of JSON counts by its value, as behind a middleware that parses it. */
function bodyOf(bytes: Buffer, type: string): unknown {
  if (!/^application\/(?:[\w.+-]+\+)?json\b/i.test(type)) return bytes;
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return bytes;
  }
}

/** An answer that passes to its client, and is kept at its end. */
class Copy {
  readonly response: Response;
  readonly #given: Response;
  readonly #attempt: Attempt;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Undefined if it is too large to be kept. */
  #chunks: Uint8Array[] | undefined = [];
  #room: number;
  readonly #forget: () => void;

  constructor(given: Response, limit: number, attempt: Attempt, forget: () => void) {
    this.#given = given;
    this.#attempt = attempt;
    this.#room = limit;
    this.#forget = forget;
    this.#reader = given.body?.getReader();
    const { status, statusText, headers } = given;
    const body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => this.#pass(controller),
        cancel: (reason) => this.#breakOff(reason),
      },
      { highWaterMark: 0 },
    );
    const bare = WITHOUT_BODY.includes(status) || this.#reader === undefined;
    this.response = new Response(bare ? null : body, { status, statusText, headers });
  }

  /** Keeps the answer of a client that has gone, as far as it can be kept. */
  async finish(): Promise<void> {
    for await (const chunk of this.#rest()) {
      this.#add(chunk);
      if (this.#chunks === undefined) break;
    }
    await this.#keep();
  }

  async *#rest(): AsyncGenerator<Uint8Array, void, undefined> {
    const reader = this.#reader;
    if (reader === undefined) return;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      await reader.cancel().catch(() => {});
    }
  }

  async #pass(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const { done = true, value } = (await this.#reader?.read()) ?? {};
      if (!done && value !== undefined) {
        this.#add(value);
        controller.enqueue(value);
        return;
      }
      await this.#keep();
      controller.close();
    } catch (error) {
      await this.#breakOff(error);
      controller.error(error);
    }
  }

  #add(chunk: Uint8Array): void {
    this.#room -= chunk.length;
    if (this.#room < 0) this.#chunks = undefined;
    // The server may use its memory for other bytes.
    this.#chunks?.push(chunk.slice());
  }

  async #keep(): Promise<void> {
    this.#forget();
    const { status, headers } = this.#given;
    const body = this.#chunks && Buffer.concat(this.#chunks);
    await this.#attempt.answered({ status, headers: Object.fromEntries(headers), body });
  }

  async #breakOff(reason: unknown): Promise<void> {
    this.#forget();
    await Promise.all([this.#reader?.cancel(reason).catch(() => {}), this.#attempt.release()]);
  }
}
