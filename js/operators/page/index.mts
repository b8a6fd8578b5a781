// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  fetchLockUi,
  type LockUi,
  type LockUiFetch,
  type LockUiFetchOptions,
  type LockUiOptions,
  type LockUiRequest,
  type LockUiServer,
  lockUi,
} from './index.js';
