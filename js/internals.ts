/**
 * What the tests look into, past the package's exports. It is not published.
 *
 * @packageDocumentation
 */

/** @internal */
export { prepare } from './api/connect.js';
/** @internal */
export { Holds } from './internal/holds.js';
/** @internal */
export { RESERVED_SUFFIXES } from './internal/names.js';
/** @internal */
export { survey } from './internal/survey.js';
/** @internal */
export { native } from './native/addon.js';
/** @internal */
export { NativeChannel } from './native/channel.js';
/** @internal */
export { openOperations } from './native/operations.js';
/** @internal */
export * as records from './native/records.js';
