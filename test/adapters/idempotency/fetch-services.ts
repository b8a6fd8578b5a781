/** The service of payments as handlers of the Fetch API, in Hono. */

import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import { fetchIdempotency } from 'holdfast/idempotency';
import { type Context, Hono } from 'hono';
import type { SERVICES } from './services.js';

export const FETCH_SERVICES: typeof SERVICES = {
  async Hono(options, pay) {
    const idempotent = fetchIdempotency(options);
    const app = new Hono();
    const handle = (c: Context) =>
      idempotent(c.req.raw, async (idempotency) => {
        const given = await c.req.json().catch(() => ({}));
        const { status, body } = await pay(given, idempotency);
        c.header('X-Payment', 'made');
        return c.json(body as object, status as 201);
      });
    app.post('/payments', handle).post('/refunds', handle).get('/payments', handle);
    // In pieces, with a status of its own.
    app.post('/raw', (c) =>
      idempotent(c.req.raw, async () => {
        await pay(await c.req.json(), undefined);
        const pieces = new ReadableStream({
          start(controller) {
            for (const text of ['a', 'b']) controller.enqueue(Buffer.from(text));
            controller.close();
          },
        });
        return new Response(pieces, { status: 202, headers: { 'X-Raw': 'yes' } });
      }),
    );
    const server = createAdaptorServer({ fetch: app.fetch }) as Server;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const close = async () => {
      server.closeAllConnections();
      server.close();
    };
    return { url, close };
  },
};
