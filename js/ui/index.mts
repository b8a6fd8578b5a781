// The CommonJS build is the real code; one implementation means one identity of every class.
export { type LockUi, type LockUiOptions, type LockUiRequest, lockUi } from './index.js';
