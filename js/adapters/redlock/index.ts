/// <reference lib="esnext.disposable" preserve="true" />

/**
 * `Redlock` of node-redlock 5, on holdfast.
 *
 * @packageDocumentation
 */

import { ExecutionError, ResourceLockedError } from './errors.js';
import { Lock, Redlock, type RedlockAbortSignal } from './redlock.js';
import type { Settings } from './settings.js';
import type { Client, ClientExecutionResult, ExecutionResult, ExecutionStats } from './votes.js';

export type {
  Client,
  ClientExecutionResult,
  ExecutionResult,
  ExecutionStats,
  RedlockAbortSignal,
  Settings,
};
export { ExecutionError, Lock, Redlock, ResourceLockedError };
export default Redlock;
