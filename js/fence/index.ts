/**
 * Checks of fences in the resource: in a transaction of a database, in Redis, and in an HTTP service.
 *
 * @packageDocumentation
 */

export { StaleFenceError } from '../base/errors.js';
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
