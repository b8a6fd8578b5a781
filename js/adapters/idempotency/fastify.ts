/** Idempotency for Fastify. */

import { isAnswered, type Reply, send } from '../../base/answer.js';
import { judgeByNode } from './attempt.js';
import { type IdempotencyOptions, type IdempotentRequest, settingsOf } from './options.js';

/** The part of Fastify's instance that is used. */
interface Instance {
  // biome-ignore lint/suspicious/noExplicitAny: the types of its hooks are Fastify's own
  addHook(name: any, hook: (...args: any[]) => any): unknown;
}

/** A plugin of Fastify with this property is no scope of its own: its hooks are those of the scope that registers it. */
const SKIP_OVERRIDE = Symbol.for('skip-override');

/**
 * A plugin for Fastify that handles each `Idempotency-Key` once, for all routes of the scope that registers it.
 * Handlers get `request.idempotency`. Answers pass unchanged, and a copy is stored.
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
  const plugin = async (instance: Instance) => {
    instance.addHook('preHandler', async (request: IdempotentRequest, reply: Reply) => {
      const answer = await judgeByNode(settings, request, reply.raw);
      if (answer !== undefined) send(reply, answer);
      return answer !== undefined || isAnswered(reply) ? reply : undefined;
    });
  };
  return Object.assign(plugin, { [SKIP_OVERRIDE]: true });
}
