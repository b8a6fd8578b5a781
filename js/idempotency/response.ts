/** Copies the answer of a handler while it passes. */

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Answer } from './answer.js';

/** What becomes of an answer. @internal */
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
  let chunks: Buffer[] | undefined = [];
  let [size, over, inside, hasLeft] = [0, false, false, false];
  let headers: OutgoingHttpHeaders | undefined;
  const { writeHead } = response;

  const collect = (chunk: unknown, encoding: unknown) => {
    const isText = typeof chunk === 'string';
    if (chunks === undefined || !(isText || chunk instanceof Uint8Array)) return;
    const kind = typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8';
    const copy = isText ? Buffer.from(chunk, kind) : Buffer.from(chunk);
    size += copy.length;
    if (size > limit) chunks = undefined;
    else chunks.push(copy);
  };
  const settle = (report: () => unknown) => {
    socket?.off('close', ended);
    if (over) return;
    over = true;
    report();
  };
  const answered = () => {
    const body = chunks && Buffer.concat(chunks);
    const all = headers ?? response.getHeaders();
    settle(() => outcome.answered({ status: response.statusCode, headers: all, body }));
  };
  // HTTP/2 emits `finish` for each stream that has closed.
  const ended = () => {
    if (response.writableEnded) answered();
    else if (response.headersSent) settle(() => outcome.release());
    else if (!hasLeft) {
      hasLeft = true;
      outcome.left();
    }
  };
  const tapped = (name: 'end' | 'write') => {
    const own = response[name] as (...args: unknown[]) => unknown;
    return (...args: unknown[]) => {
      // Some servers' `end` calls `write`.
      if (inside || response.writableEnded) return own.apply(response, args);
      const before = [chunks?.length ?? 0, size] as const;
      inside = true;
      try {
        collect(args[0], args[1]);
        const result = own.apply(response, args);
        if (hasLeft && name === 'end') answered();
        return result;
      } catch (error) {
        // Refused by Node: nothing of it was sent.
        if (chunks !== undefined) [chunks.length, size] = before;
        throw error;
      } finally {
        inside = false;
      }
    };
  };
  Object.assign(response, {
    end: tapped('end'),
    write: tapped('write'),
    writeHead(...args: unknown[]) {
      // What other middleware adds below this one, it adds to the repeated answer, too.
      const given = args.find((each) => typeof each === 'object');
      const all = { ...response.getHeaders(), ...byName(given) };
      const result = writeHead.apply(response, args as never);
      headers = all;
      return result;
    },
  });
  response.on('finish', ended).on('close', ended);
  // A response that waits behind another one on its connection does not learn of its end.
  const socket = response.socket === null ? response.req?.socket : undefined;
  socket?.on('close', ended);
  if (response.destroyed || socket?.destroyed) ended();
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
