/** Idempotency for Fastify. */

import { buffer } from 'node:stream/consumers';
import { refuse } from '../base/http.js';
import { type Answer, type Attempt, judge } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

/** What is used of a reply of Fastify. */
interface Reply {
  readonly statusCode: number;
  code(status: number): Reply;
  headers(headers: object): Reply;
  getHeaders(): object;
  send(body: unknown): unknown;
}

/** What is used of an instance of Fastify. */
interface Instance {
  // biome-ignore lint/suspicious/noExplicitAny: the types of its hooks are Fastify's own
  addHook(name: any, hook: (...args: any[]) => any): unknown;
}

/** A plugin of Fastify with this property is no scope of its own: its hooks are those of the scope that registers it. */
const SKIP_OVERRIDE = Symbol.for('skip-override');

/**
 * A plugin for Fastify that handles each `Idempotency-Key` once, for all routes of the scope that registers it.
 * Handlers get `request.idempotency`. Each answer is stored as a whole, so do not use it for long streams.
 *
 * @throws TypeError or RangeError for wrong options.
 *
 * @example
 * ```ts
 * import fastify from 'fastify'
 * import { fastifyIdempotency, memoryStore } from 'holdfast/idempotency'
 *
 * const app = fastify()
 * app.register(fastifyIdempotency({ locks, store: memoryStore() }))
 * app.post('/payments', async (_request, reply) => reply.code(201).send({ paid: true }))
 * await app.close()
 * ```
 */
export function fastifyIdempotency(
  options: IdempotencyOptions,
): (instance: Instance) => Promise<void> {
  const settings = settingsOf(options, 'fastifyIdempotency');
  const attempts = new WeakMap<object, Attempt>();
  const plugin = async (instance: Instance) => {
    instance.addHook('preHandler', async (request: IdempotentRequest, reply: Reply) => {
      const verdict = await judge(settings, request);
      if (verdict.kind === 'pass') return undefined;
      if (verdict.kind === 'run') {
        attempts.set(request, verdict.attempt);
        Object.assign(request, { idempotency: verdict.attempt });
        return undefined;
      }
      if (verdict.kind === 'refuse') refuse(reply, verdict.problem, verdict.headers);
      else replay(reply, verdict.answer);
      return reply;
    });
    // Kept before it is sent: who has got an answer can rely on getting it again.
    instance.addHook('onSend', async (request: object, reply: Reply, payload: unknown) => {
      const attempt = attempts.get(request);
      if (attempt === undefined) return payload;
      // If it cannot be read, Fastify comes here again with the error.
      const body = await bodyOf(payload);
      attempts.delete(request);
      const headers = reply.getHeaders() as Answer['headers'];
      await attempt.finish({ status: reply.statusCode, headers, body });
      return body;
    });
    // An answer that was sent past Fastify is not known.
    instance.addHook('onResponse', async (request: object) => attempts.get(request)?.abandon());
  };
  return Object.assign(plugin, { [SKIP_OVERRIDE]: true });
}

function replay(reply: Reply, { status, headers, body }: Answer): void {
  reply.code(status).headers(headers).send(body);
}

async function bodyOf(payload: unknown): Promise<Buffer> {
  if (payload === undefined || payload === null) return Buffer.alloc(0);
  if (typeof payload === 'string' || payload instanceof Uint8Array)
    return Buffer.from(payload as string);
  return buffer(payload as AsyncIterable<Uint8Array>);
}
