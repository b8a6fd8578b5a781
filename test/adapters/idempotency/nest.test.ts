/** What the interceptor of Nest gives to the interceptors around it. */

import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { memoryStore } from 'holdfast/idempotency';
import { IdempotencyInterceptor } from 'holdfast/nest';
import { of } from 'rxjs';
import { connect } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

type Given = Parameters<IdempotencyInterceptor['intercept']>;

test('a stored answer ends as one of the handler does, and nothing is added to it', async (t) => {
  const locks = await connect('memory:');
  const interceptor = new IdempotencyInterceptor({ locks, store: memoryStore() });
  const told: unknown[] = [];
  let handled = 0;
  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const http = { getRequest: () => request, getResponse: () => response };
    const context = { getType: () => 'http', switchToHttp: () => http } as unknown as Given[0];
    const next = {
      handle: () => {
        handled += 1;
        response.writeHead(201, { 'X-Payment': 'made' }).end('paid');
        return of('handled');
      },
    };
    const result = await interceptor.intercept(context, next);
    result.subscribe({
      next: (value) => told.push(value),
      complete: () => {
        told.push('complete');
        if (told.length === 2) return;
        // As Nest does with what a handler has returned.
        response.setHeader('X-More', 'more');
        response.end('more');
      },
    });
  };
  const server = createServer((request, response) => void handle(request, response));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await locks.close();
  });
  const { port } = server.address() as AddressInfo;
  const headers = { 'Idempotency-Key': 'k' };
  const pay = () => fetch(`http://127.0.0.1:${port}/pay`, { method: 'POST', headers });
  const first = await pay();
  assert.deepEqual([first.status, await first.text()], [201, 'paid']);
  await until(() => told.length === 2, 'the end of the first');
  const second = await pay();
  assert.deepEqual([second.status, await second.text()], [201, 'paid']);
  assert.equal(second.headers.get('x-more'), null);
  await until(() => told.length === 4, 'the end of the second');
  assert.deepEqual([told, handled], [['handled', 'complete', undefined, 'complete'], 1]);
});

test('what is no request of HTTP is passed on', async (t) => {
  const locks = await connect('memory:');
  t.after(() => locks.close());
  const interceptor = new IdempotencyInterceptor({ locks, store: memoryStore() });
  const context = { getType: () => 'rpc' } as unknown as Given[0];
  const told: unknown[] = [];
  const result = await interceptor.intercept(context, { handle: () => of('handled') });
  result.subscribe((value) => told.push(value));
  assert.deepEqual(told, ['handled']);
});
