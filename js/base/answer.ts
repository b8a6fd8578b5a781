/** The one place that sends answers: by a response of Node, by a reply of Fastify, or as a `Response` of the Fetch API. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';

/** @internal */
export interface Answer {
  readonly status: number;
  /** The reason beside the status, by default that of HTTP. */
  readonly message?: string | undefined;
  readonly headers: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array | ReadableStream<Uint8Array> | undefined;
  /** Whether it is a copy of what went out once, which no hook of Fastify may change a second time. */
  readonly copy?: boolean;
}

/** The part of Fastify's reply that is used. @internal */
export interface Reply {
  readonly raw: ServerResponse;
  readonly sent?: boolean;
  code(status: number): Reply;
  headers(headers: object): Reply;
  getHeaders(): OutgoingHttpHeaders;
  hijack(): unknown;
  send(body: unknown): unknown;
}

/** Where an answer goes: a response of Express or node:http, or a reply of Fastify. @internal */
export type Recipient = Reply | ServerResponse;

function isReply(to: Recipient): to is Reply {
  return 'raw' in to;
}

/** Whether somebody has answered in full, such as a timeout ahead of this handler. @internal */
export function isAnswered(to: Recipient): boolean {
  return isReply(to) ? to.sent === true || to.raw.writableEnded : to.writableEnded;
}

/**
 * Sends an answer, unless somebody else has begun one, or the client has gone. Returns whether it was sent; the request is
 * over in any case.
 *
 * @internal
 */
export function send(to: Recipient, answer: Answer): boolean {
  const response = isReply(to) ? to.raw : to;
  if (isAnswered(to) || response.headersSent || response.destroyed) {
    if (answer.body instanceof ReadableStream) answer.body.cancel().catch(() => {});
    return false;
  }
  if (isReply(to)) sendByReply(to, answer);
  else sendPlain(to, answer);
  return true;
}

function sendByReply(reply: Reply, answer: Answer): void {
  const { status, headers, body, copy } = answer;
  if (copy !== true) {
    reply.code(status).headers(headers).send(body);
    return;
  }
  const all = { ...reply.getHeaders(), ...headers };
  reply.hijack();
  sendPlain(reply.raw, { ...answer, headers: all });
}

function sendPlain(response: ServerResponse, { status, message, headers, body }: Answer): void {
  response.statusCode = status;
  // HTTP/2 has none, and warns of it.
  if (message !== undefined && !('stream' in response)) response.statusMessage = message;
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) response.setHeader(name, value);
  }
  if (body instanceof ReadableStream) void pump(body, response);
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

/**
 * Sends the answer to which `judging` resolves; if that is undefined, goes on to `next`, which also gets every error. A
 * request that somebody else has answered meanwhile is over: `next` is not called for it, except with an error.
 *
 * @internal
 */
export function respond(
  to: Recipient,
  next: (error?: Error) => void,
  judging: Promise<Answer | undefined>,
): void {
  judging
    .then((answer) => {
      if (answer === undefined) return !isAnswered(to);
      send(to, answer);
      return false;
    })
    .then(
      // In a turn of its own: an error that `next` throws is no rejection of this promise.
      (goesOn) => {
        if (goesOn) process.nextTick(next);
      },
      // Without an error `next` would let the request pass.
      (error) => process.nextTick(next, error ?? new Error(`the request failed by ${error}`)),
    );
}

/** Answers have no body of these. @internal */
export const WITHOUT_BODY: readonly number[] = [204, 205, 304];

/** @internal */
export function toResponse({ status, message = '', headers, body }: Answer): Response {
  const pairs = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((each) => [name, String(each)] as [string, string]),
  );
  const bare = body === undefined || WITHOUT_BODY.includes(status);
  // A Response takes no bytes that threads may share.
  const given = body instanceof Uint8Array ? new Uint8Array(body) : body;
  return new Response(bare ? null : given, { status, statusText: message, headers: pairs });
}
