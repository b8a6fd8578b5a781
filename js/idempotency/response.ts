/** Copies the answer of a handler while it passes. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Answer } from './answer.js';

/** Gets the end of an answer, by these calls. @internal */
export interface Outcome {
  /** It was handed to the operating system as a whole, or was made for a client that had gone. */
  answered(answer: Answer): unknown;
  /** The client has gone ahead of it. `answered` may follow. */
  left(): unknown;
  /** It broke off. */
  release(): unknown;
}

/**
 * Tells `outcome` what becomes of the answer that passes through `response`, with a copy of it, without its body if that
 * has more than `limit` bytes. Changes nothing of what is sent.
 *
 * @internal
 */
export function copyAnswer(response: ServerResponse, limit: number, outcome: Outcome): void {
  const [headersOf, bodyOf] = [copyHead(response), copyBody(response, limit, ended)];
  let [over, hasLeft] = [false, false];
  // A response that waits behind another one on its connection does not learn of its end.
  const socket = response.socket === null ? response.req?.socket : undefined;
  const settle = (report: () => unknown) => {
    if (!over) report();
    over = true;
    socket?.off('close', gone);
  };
  const answered = () => {
    const [status, headers] = [response.statusCode, headersOf()];
    settle(() => outcome.answered({ status, headers, body: bodyOf() }));
  };
  // HTTP/2 emits `finish` for each stream that has closed.
  const gone = () => {
    if (response.writableEnded) answered();
    else if (response.headersSent) settle(() => outcome.release());
    else if (!hasLeft) {
      hasLeft = true;
      outcome.left();
    }
  };
  function ended() {
    if (hasLeft) answered();
  }
  response.on('finish', gone).on('close', gone);
  socket?.on('close', gone);
  if (response.destroyed || socket?.destroyed) gone();
}

/** Copies the headers as they are at this point: what middleware below adds, it adds to a repeated answer, too. */
function copyHead(response: ServerResponse): () => OutgoingHttpHeaders {
  const { writeHead } = response;
  let headers: OutgoingHttpHeaders | undefined;
  const tapped = (...args: unknown[]) => {
    const given = args.find((each) => typeof each === 'object');
    const all = { ...response.getHeaders(), ...byName(given) };
    const result = writeHead.apply(response, args as never);
    headers = all;
    return result;
  };
  Object.assign(response, { writeHead: tapped });
  return () => headers ?? response.getHeaders();
}

/** Copies a body of at most `limit` bytes, and calls `ended` after each `end`. */
function copyBody(response: ServerResponse, limit: number, ended: () => void) {
  let chunks: Buffer[] | undefined = [];
  let [room, inside] = [limit, false];
  const add = (chunk: unknown, encoding: unknown) => {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return;
    const kind = typeof encoding === 'string' ? encoding : 'utf8';
    const copy = Buffer.from(chunk as string, kind as BufferEncoding);
    room -= copy.length;
    if (room < 0) chunks = undefined;
    chunks?.push(copy);
  };
  const tapped = (name: 'end' | 'write') => {
    const own = response[name] as (...args: unknown[]) => unknown;
    return (...args: unknown[]) => {
      // The `end` of some servers calls `write`.
      if (inside || response.writableEnded) return own.apply(response, args);
      const before = [chunks?.length ?? 0, room] as const;
      inside = true;
      try {
        add(args[0], args[1]);
        const result = own.apply(response, args);
        if (name === 'end') ended();
        return result;
      } catch (error) {
        // Refused by Node: nothing of it was sent.
        if (chunks !== undefined) [chunks.length, room] = before;
        throw error;
      } finally {
        inside = false;
      }
    };
  };
  Object.assign(response, { end: tapped('end'), write: tapped('write') });
  return () => chunks && Buffer.concat(chunks);
}

/** The headers that `writeHead` was given, by name in lower case: an object, or a list of names and values. */
function byName(given: unknown): OutgoingHttpHeaders {
  const list = Array.isArray(given) ? given : Object.entries(given ?? {}).flat();
  const all: OutgoingHttpHeaders = {};
  for (let i = 0; i < list.length; i += 2) {
    const [name, value] = [String(list[i]).toLowerCase(), list[i + 1]];
    const former = Array.isArray(given) ? all[name] : undefined;
    if (value !== undefined) all[name] = former === undefined ? value : [former, value].flat();
  }
  return all;
}
