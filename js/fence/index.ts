/**
 * Checks of fences where they count: in the transaction of a database, in Redis, and in a service that others send requests.
 *
 * @packageDocumentation
 */

export { StaleFenceError } from '../api/errors.js';
export { checkFence, type Fenced, type FencedSet } from './check.js';
export type { FenceConnection, FenceSqlite, FenceTransaction } from './clients.js';
export {
  type FenceStore,
  type HttpFenceOptions,
  httpFence,
  memoryFences,
  redisFences,
} from './http.js';
export { type FenceRedis, fencedEval, fencedSet } from './redis.js';
export { type FenceDialect, fenceTable } from './table.js';
export { type FenceMysqlPool, type FencePgPool, fencedTransaction } from './transaction.js';
