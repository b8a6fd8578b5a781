/** Servers of node:http with the middleware, requests as bytes on a connection, and stores that fail. */

import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import {
  expressIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotencyStore,
  memoryStore,
} from 'holdfast/idempotency';

export type Handler = (
  request: IncomingMessage & { idempotency?: Idempotency },
  response: ServerResponse,
) => unknown;

/** Serves until the end of the test, and answers the port. */
export async function serve(t: TestContext, listener: RequestListener): Promise<number> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A listener of node:http whose requests have the body `"{}"`, behind the middleware unless there are no options. */
export function listener(handler: Handler, options?: IdempotencyOptions): RequestListener {
  const middleware = options && expressIdempotency(options);
  return (request, response) => {
    Object.assign(request, { body: '{}' });
    request.resume();
    const go = (error?: unknown) => {
      if (error === undefined) return handler(request, response);
      response.statusCode = 500;
      return response.end(String(error));
    };
    if (middleware === undefined) go();
    else middleware(request, response, go);
  };
}

/** A request as bytes. */
export function bytes(key: string, path = '/', connection = 'keep-alive'): string {
  const head = `POST ${path} HTTP/1.1\r\nHost: a\r\nConnection: ${connection}\r\nIdempotency-Key: ${key}`;
  return `${head}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`;
}

/** A connection, and what was received on it. */
export class Wire {
  received = '';
  closed = false;
  readonly socket: Socket;

  constructor(t: TestContext, port: number, first = '') {
    this.socket = connect(port, '127.0.0.1', () => this.socket.write(first));
    this.socket.on('data', (chunk) => {
      this.received += chunk.toString('latin1');
    });
    this.socket
      .on('error', () => {})
      .on('close', () => {
        this.closed = true;
      });
    t.after(() => this.socket.destroy());
  }
}

/**
 * A store whose call number `n` of `method` (from 1 on) and the `more` ones after it fail: the first `lost` of them after
 * their effect, the others before it.
 */
export function failingStore(
  method: keyof IdempotencyStore,
  n: number,
  { more = 0, lost = 0 }: { more?: number; lost?: number } = {},
): IdempotencyStore {
  const store = memoryStore();
  let calls = 0;
  const failing = async (...args: unknown[]) => {
    calls += 1;
    const fails = calls >= n && calls <= n + more;
    const call = store[method] as (...all: unknown[]) => Promise<unknown>;
    const result = fails && calls >= n + lost ? undefined : await call(...args);
    if (fails) throw new Error('the store failed');
    return result;
  };
  return { ...store, [method]: failing };
}

/** A promise, and its function. */
export function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
