/**
 * The header `Idempotency-Key` for Express and Fastify: repeated requests take effect once.
 *
 * @packageDocumentation
 */

export type { Idempotency } from './attempt.js';
export { expressIdempotency } from './express.js';
export { fastifyIdempotency } from './fastify.js';
export type { IdempotencyOptions, IdempotentRequest } from './options.js';
export { type IdempotencyStore, memoryStore, redisStore } from './store.js';
