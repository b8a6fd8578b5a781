/**
 * The header `Idempotency-Key` for Express, Fastify and handlers of the Fetch API: repeated requests take effect once.
 *
 * @packageDocumentation
 */

export type { Idempotency } from './attempt.js';
export { expressIdempotency } from './express.js';
export { fastifyIdempotency } from './fastify.js';
export { type FetchIdempotency, fetchIdempotency } from './fetch.js';
export type { IdempotencyOptions, IdempotentRequest } from './options.js';
export { type IdempotencyStore, memoryStore, redisStore } from './store.js';
