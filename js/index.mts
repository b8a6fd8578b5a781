// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  type AcquireOptions,
  type ConnectOptions,
  connect,
  type Lock,
  LockClosedError,
  LockConnectionError,
  LockError,
  LockLoadError,
  LockLostError,
  type LockLostReason,
  type LockManager,
  type LockManagerEvents,
  LockServerError,
  LockTimeoutError,
  type RequestOptions,
  type TryAcquireOptions,
} from './index.js';
