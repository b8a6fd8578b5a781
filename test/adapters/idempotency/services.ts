/** A service that takes payments, in Express and in Fastify. */

import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import express, { type Request, type Response } from 'express';
import fastify from 'fastify';
import {
  expressIdempotency,
  fastifyIdempotency,
  type Idempotency,
  type IdempotencyOptions,
} from 'holdfast/idempotency';

/** A payment: what it returns is the answer. */
export type Pay = (
  body: { amount?: number },
  idempotency: Idempotency | undefined,
) => Promise<{ status: number; body: unknown }>;

export interface Service {
  readonly url: string;
  close(): Promise<unknown>;
}

/** Starts a service with an answer that is made in several ways. */
export const SERVICES: Record<string, (options: IdempotencyOptions, pay: Pay) => Promise<Service>> =
  {
    async Express(options, pay) {
      const app = express();
      app.use(express.json(), expressIdempotency(options));
      const handle = async (request: Request, response: Response) => {
        const { idempotency } = request as { idempotency?: Idempotency };
        const { status, body } = await pay((request.body ?? {}) as object, idempotency);
        response.status(status).setHeader('X-Payment', 'made').json(body);
      };
      app.post('/payments', handle).post('/refunds', handle).get('/payments', handle);
      // Without Express: in pieces, with a status of its own.
      app.post('/raw', async (request, response) => {
        await pay(request.body as object, undefined);
        response.writeHead(202, { 'X-Raw': 'yes' });
        response.write('a');
        response.end(Buffer.from('b'));
      });
      return new Promise((resolve) => {
        const server = app.listen(0, '127.0.0.1', () => {
          const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
          const close = async () => {
            server.closeAllConnections();
            server.close();
          };
          resolve({ url, close });
        });
      });
    },
    async Fastify(options, pay) {
      const app = fastify({ forceCloseConnections: true });
      await app.register(fastifyIdempotency(options));
      for (const url of ['/payments', '/refunds', '/raw']) {
        app.route({
          url,
          method: ['GET', 'POST'],
          async handler(request, reply) {
            const { idempotency } = request as { idempotency?: Idempotency };
            const { status, body } = await pay((request.body ?? {}) as object, idempotency);
            if (url === '/raw')
              return reply.code(202).header('X-Raw', 'yes').send(Buffer.from('ab'));
            return reply.code(status).header('X-Payment', 'made').send(body);
          },
        });
      }
      const url = await app.listen({ host: '127.0.0.1', port: 0 });
      return { url, close: () => app.close() };
    },
  };

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** What a client compares: status, own headers, and body. */
  readonly digest: string;
}

/** Sends a payment. */
export async function post(
  url: string,
  key: string | undefined,
  { body = { amount: 5 }, headers = {} }: { body?: unknown; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const all = {
    'Content-Type': 'application/json',
    ...(key === undefined ? {} : { 'Idempotency-Key': key }),
    ...headers,
  };
  const response = await fetch(url, { method: 'POST', headers: all, body: JSON.stringify(body) });
  const text = await response.text();
  const own = ['content-type', 'x-payment', 'x-raw'].map((name) => response.headers.get(name));
  const digest = createHash('sha256').update(JSON.stringify([response.status, own, text]));
  return { status: response.status, headers: response.headers, text, digest: digest.digest('hex') };
}
