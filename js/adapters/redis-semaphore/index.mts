// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  type Client,
  defaultTimeoutOptions,
  Lock,
  type LockLostCallback,
  type LockOptions,
  LostLockError,
  MultiSemaphore,
  Mutex,
  RedlockMutex,
  Semaphore,
  TimeoutError,
  type TimeoutOptions,
} from './index.js';
