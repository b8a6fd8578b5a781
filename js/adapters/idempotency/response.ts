/** Copies the answer of a handler while it passes. */

import { EventEmitter } from 'node:events';
import {
  type OutgoingHttpHeaders,
  type ServerResponse,
  validateHeaderName,
  validateHeaderValue,
} from 'node:http';
import type { Given } from './answer.js';

/** Gets the end of an answer, by these calls. @internal */
export interface Outcome {
  /** It was handed to the operating system as a whole, or was made for a client that had gone. */
  answered(answer: Given): unknown;
  /** The client has gone ahead of it. `answered` may follow. */
  left(): unknown;
  /** It broke off. */
  release(): unknown;
}

/**
 * Tells `outcome` what becomes of the answer that passes through `response`, with a copy of it, without its body if that
 * has more than `limit` bytes. Changes nothing of what is sent. Head and body are copied as the handler gives them, ahead of
 * all middleware below, such as compressors: that does its work on a repeated answer, too.
 *
 * @internal
 */
export function copyAnswer(response: ServerResponse, limit: number, outcome: Outcome): void {
  const copy = new Copy(response, limit);
  let [over, hasLeft] = [false, false];
  // A response that waits behind another one on its connection does not learn of its end.
  const socket = response.socket === null ? response.req?.socket : undefined;
  const settle = (report: () => unknown) => {
    if (!over) report();
    over = true;
    socket?.off('close', gone);
  };
  const answered = () => settle(() => outcome.answered(copy.given()));
  // HTTP/2 emits `finish` for each stream that has closed.
  const gone = () => {
    if (copy.ended || response.writableEnded) answered();
    else if (response.headersSent) settle(() => outcome.release());
    else if (!hasLeft) {
      hasLeft = true;
      outcome.left();
    }
  };
  copy.onEnd = () => {
    if (hasLeft) answered();
  };
  // Some compressors replace `on`, and tell of their own stream.
  const { on } = EventEmitter.prototype;
  on.call(response, 'finish', gone);
  on.call(response, 'close', gone);
  socket?.on('close', gone);
  if (response.destroyed || socket?.destroyed) gone();
}

type Head = Omit<Given, 'body'>;

type Name = 'end' | 'write' | 'writeHead';
type Call = (...args: unknown[]) => unknown;

/** The head and the parts of the body that pass through the methods of a response. */
class Copy {
  /** The handler has ended its answer. */
  ended = false;
  onEnd = () => {};
  readonly #response: ServerResponse;
  #head: Head | undefined;
  /** Undefined if the body is too large. */
  #chunks: Buffer[] | undefined = [];
  #room: number;
  /** A call of the handler is under way: the calls that it makes below are none of the handler's. */
  #inside = false;

  constructor(response: ServerResponse, limit: number) {
    this.#response = response;
    this.#room = limit;
    for (const name of ['writeHead', 'write', 'end'] as const) {
      const own = response[name] as Call;
      const call: Call = (...args) => {
        if (!this.#inside && !response.writableEnded) return this.#pass(name, own, args);
        // Middleware above this one that changes headers last is called by Node, below.
        if (name === 'writeHead' && response.writeHead !== call)
          this.#head = headOf(response, args);
        return own.apply(response, args);
      };
      Object.assign(response, { [name]: call });
    }
  }

  given(): Given {
    const head = this.#head ?? headOf(this.#response, []);
    return { ...head, body: this.#chunks && Buffer.concat(this.#chunks) };
  }

  #pass(name: Name, own: Call, args: unknown[]): unknown {
    const before = [this.#head, this.#chunks?.length ?? 0, this.#room] as const;
    this.#inside = true;
    try {
      this.#head ??= headOf(this.#response, name === 'writeHead' ? args : []);
      if (name !== 'writeHead') this.#add(args[0], args[1]);
      const result = own.apply(this.#response, args);
      this.#keepOne();
      if (name === 'end') {
        this.ended = true;
        this.onEnd();
      }
      return result;
    } catch (error) {
      // Refused by Node: nothing of it was sent.
      if (this.#chunks !== undefined) this.#chunks.length = before[1];
      [this.#head, , this.#room] = before;
      throw error;
    } finally {
      this.#inside = false;
    }
  }

  /** Some versions of Node keep the last of several values for one name. */
  #keepOne(): void {
    for (const [name, value] of Object.entries(this.#head?.headers ?? {})) {
      const sent = Array.isArray(value) ? this.#response.getHeader(name) : undefined;
      if (this.#head !== undefined && sent !== undefined) this.#head.headers[name] = sent;
    }
  }

  #add(chunk: unknown, encoding: unknown): void {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return;
    const kind = typeof encoding === 'string' ? encoding : 'utf8';
    const copy = Buffer.from(chunk as string, kind as BufferEncoding);
    this.#room -= copy.length;
    if (this.#room < 0) this.#chunks = undefined;
    this.#chunks?.push(copy);
  }
}

/** The head of an answer that is about to be sent, by `writeHead` with these arguments. */
function headOf(response: ServerResponse, args: readonly unknown[]): Head {
  const [status = response.statusCode, ...more] = args;
  // HTTP/2 has no message, and warns who asks for it.
  const own = 'stream' in response ? undefined : response.statusMessage || undefined;
  const message = more.find((each) => typeof each === 'string') ?? own;
  const given = more.find((each) => typeof each === 'object');
  const headers = valid({ ...response.getHeaders(), ...byName(given) });
  return { status: Number(status), message, headers } as Head;
}

/** The headers that can be set again. */
function valid(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const some = Object.entries(headers).filter(([name, value]) => {
    try {
      validateHeaderName(name);
      for (const each of [value].flat()) validateHeaderValue(name, each as string);
      return true;
    } catch {
      return false;
    }
  });
  return Object.fromEntries(some);
}

/** The headers that `writeHead` was given, by name in lower case: an object, a list of names and values, or of pairs. */
function byName(given: unknown): OutgoingHttpHeaders {
  const all: OutgoingHttpHeaders = {};
  for (const [name, value] of pairsOf(given)) {
    const key = String(name).toLowerCase();
    const former = Array.isArray(given) ? all[key] : undefined;
    if (value !== undefined) {
      all[key] = former === undefined ? value : ([former, value].flat() as string[]);
    }
  }
  return all;
}

function pairsOf(given: unknown): (readonly [unknown, OutgoingHttpHeaders[string]])[] {
  if (!Array.isArray(given)) return Object.entries(given ?? {});
  if (Array.isArray(given[0])) return given;
  return given.flatMap((name, at) => (at % 2 === 0 ? [[name, given[at + 1]] as const] : []));
}
