/**
 * Locks in NestJS: a module, decorators for methods, a health indicator, and an interceptor for `Idempotency-Key`.
 *
 * @packageDocumentation
 */

export { currentLock, currentSlot } from './current.js';
export { type LockHealth, type LockHealthOptions, lockHealth } from './health.js';
export { IdempotencyInterceptor } from './idempotency.js';
export { Leader, type LeaderDecorator, type LeaderMethodOptions } from './leader.js';
export { Lock, type LockDecorator, type LockMethodOptions } from './lock.js';
export {
  HoldfastModule,
  type HoldfastModuleAsyncOptions,
  type HoldfastModuleOptions,
  type HoldfastOptions,
} from './module.js';
export { Once, type OnceDecorator, type OnceMethodOptions } from './once.js';
export { InjectLocks, lockManagerToken } from './tokens.js';
