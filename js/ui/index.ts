/**
 * The page for operators, to be mounted in an app.
 *
 * @packageDocumentation
 */

export { type LockUi, lockUi } from './handler.js';
export type { LockUiOptions, LockUiRequest } from './options.js';
