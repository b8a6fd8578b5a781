/** Services and clients for the adapters of HTTP. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Scene } from './scene.js';

/** Serves until the end of the scene, and answers the URL. */
export async function serve(scene: Scene, listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scene.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** An answer as its client sees it. */
export interface Seen {
  readonly status: number;
  readonly text: string;
  readonly replayed: boolean;
}

export async function seen(response: Response): Promise<Seen> {
  const replayed = response.headers.get('idempotency-replayed') === 'true';
  return { status: response.status, text: await response.text(), replayed };
}

export async function post(url: string, headers: Record<string, string>): Promise<Seen> {
  const all = { 'content-type': 'application/json', ...headers };
  return seen(await fetch(url, { method: 'POST', headers: all, body: '{"amount":5}' }));
}

/** A connection with a request, whose answer nobody reads. */
export async function unread(
  scene: Scene,
  url: string,
  head: string,
  body = '{"amount":5}',
): Promise<Socket> {
  const { hostname, port, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  scene.after(() => socket.destroy());
  await once(socket, 'connect');
  const [method = '', ...more] = head.split('\r\n');
  const length = body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  const lines = [`${method} ${pathname} HTTP/1.1`, 'Host: a', 'Content-Type: application/json'];
  socket.pause();
  socket.write(`${[...lines, ...length, ...more].join('\r\n')}\r\n\r\n${body}`);
  return socket;
}

/** A promise, and what fulfils it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/** Does `work` for each number below `count`, a hundred at a time. */
export async function many<T>(count: number, work: (i: number) => Promise<T>): Promise<T[]> {
  const all: T[] = [];
  for (let from = 0; from < count; from += 100) {
    const some = Array.from({ length: Math.min(100, count - from) }, (_, i) => work(from + i));
    all.push(...(await Promise.all(some)));
  }
  return all;
}

/** The message of what `work` rejects with or throws, with that of its causes. */
export async function failureOf(work: () => unknown): Promise<string> {
  try {
    await work();
  } catch (error) {
    return messageOf(error);
  }
  return assert.fail('it did not fail');
}

export function messageOf(error: unknown): string {
  const { name, message, cause } = error as Error;
  return cause === undefined ? `${name}: ${message}` : `${name}: ${message} <- ${messageOf(cause)}`;
}
