// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  expressIdempotency,
  type FetchIdempotency,
  fastifyIdempotency,
  fetchIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotencyStore,
  type IdempotentRequest,
  memoryStore,
  redisStore,
} from './index.js';
