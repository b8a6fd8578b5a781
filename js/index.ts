/// <reference lib="esnext.disposable" preserve="true" />

/**
 * Distributed locks for Node services, held in Redis.
 *
 * @packageDocumentation
 */

export { connect } from './connect.js';
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
export type { Lock } from './lock.js';
export type { LockManager, LockManagerEvents } from './manager.js';
export type {
  AcquireOptions,
  ConnectOptions,
  Pem,
  RequestOptions,
  TlsOptions,
  TryAcquireOptions,
} from './options.js';
export type { LockStats } from './stats.js';
export type {
  ClusterTarget,
  QuorumTarget,
  SentinelAddress,
  SentinelTarget,
  UrlLike,
} from './target.js';
