/// <reference lib="esnext.disposable" preserve="true" />

/**
 * Distributed locks for Node services, held in Redis.
 *
 * @packageDocumentation
 */

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
  LockUnmarkedError,
  type QuorumServer,
  StaleFenceError,
} from './base/errors.js';
export type { Duration } from './base/time.js';
export { connect } from './connect/connect.js';
export { connectLazily } from './connect/lazily.js';
export type {
  BasicCredentials,
  Credentials,
  CredentialsSource,
  LoginText,
} from './connect/login.js';
export type { BesideOldCode, ConnectOptions } from './connect/options.js';
export type {
  ClusterTarget,
  ConnectTarget,
  QuorumTarget,
  RedisClient,
  SentinelAddress,
  SentinelTarget,
  ServerTarget,
  UrlLike,
} from './connect/target.js';
export type { Pem, TlsOptions } from './connect/tls.js';
export type { Leader, LeadOptions, LeadState, Term, TermEnd } from './lead/options.js';
export type { LockLostMessage, LockTrace } from './lock/diagnostics.js';
export type { Lock, LockJson, LockMode } from './lock/lock.js';
export type { LockFor, LockSet } from './lock/lock-set.js';
export type {
  AcquireOptions,
  AdoptOptions,
  ForceReleaseOptions,
  QueryOptions,
  ReleaseOptions,
  RequestOptions,
  TryAcquireOptions,
} from './lock/options.js';
export type { HeldLockInfo, HoldState, LockSnapshot, PendingLockInfo } from './lock/query.js';
export type {
  LockManagerEvents,
  LockWarning,
  LockWarningCode,
} from './manager/events.js';
export { LockManager } from './manager/manager.js';
export type { HandOffCount, LockStats, ServerAbilities } from './manager/stats.js';
export type { OnceOptions, OnceRan, OnceRefused, OnceResult } from './once/options.js';
