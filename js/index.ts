/// <reference lib="esnext.disposable" preserve="true" />

/**
 * Distributed locks for Node services, held in Redis.
 *
 * @packageDocumentation
 */

export { connect } from './connect.js';
export type { ConnectOptions, Pem, TlsOptions } from './connect-options.js';
export type { LockLostMessage, LockTrace } from './diagnostics.js';
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
  type QuorumNode,
} from './errors.js';
export type { LockManagerEvents } from './events.js';
export type { Lock, LockJson } from './lock.js';
export type { LockSet } from './lock-set.js';
export type { LockManager } from './manager.js';
export type {
  AcquireOptions,
  AdoptOptions,
  ForceReleaseOptions,
  LockMode,
  QueryOptions,
  RequestOptions,
  TryAcquireOptions,
} from './options.js';
export type { HeldLockInfo, LockSnapshot, PendingLockInfo } from './query.js';
export type { HandOffCount, LockStats } from './stats.js';
export type {
  ClusterTarget,
  QuorumTarget,
  SentinelAddress,
  SentinelTarget,
  UrlLike,
} from './target.js';
