/// <reference lib="esnext.disposable" preserve="true" />

/**
 * Distributed locks for Node services, held in Redis.
 *
 * @packageDocumentation
 */

export { connect } from './api/connect.js';
export type { BesideOldCode, ConnectOptions } from './api/connect-options.js';
export type { LockLostMessage, LockTrace } from './api/diagnostics.js';
export {
  LockClosedError,
  LockConnectionError,
  LockError,
  LockLoadError,
  LockLostError,
  type LockLostReason,
  LockQuorumError,
  LockServerError,
  LockTimeoutError,
  type QuorumServer,
  StaleFenceError,
} from './api/errors.js';
export type { LockManagerEvents, LockWarning, LockWarningCode } from './api/events.js';
export type { Lock, LockJson, LockMode } from './api/lock.js';
export type { LockSet } from './api/lock-set.js';
export { LockManager } from './api/manager.js';
export type { OnceOptions, OnceRan, OnceRefused, OnceResult } from './api/once.js';
export type {
  AcquireOptions,
  AdoptOptions,
  ForceReleaseOptions,
  QueryOptions,
  RequestOptions,
  TryAcquireOptions,
} from './api/options.js';
export type { HeldLockInfo, LockSnapshot, PendingLockInfo } from './api/query.js';
export type { HandOffCount, LockStats, ServerAbilities } from './api/stats.js';
export type {
  ClusterTarget,
  ConnectTarget,
  QuorumTarget,
  RedisClient,
  SentinelAddress,
  SentinelTarget,
  ServerTarget,
  UrlLike,
} from './api/target.js';
export type { Pem, TlsOptions } from './api/tls.js';
