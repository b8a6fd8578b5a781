/**
 * The page for operators, to be mounted in an app.
 *
 * @packageDocumentation
 */

export { fetchLockUi, type LockUi, type LockUiFetch, lockUi } from './handler.js';
export type {
  LockUiFetchOptions,
  LockUiOptions,
  LockUiRequest,
  LockUiServer,
} from './options.js';
