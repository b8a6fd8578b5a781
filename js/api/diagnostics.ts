/**
 * Tracing channels, for whoever watches from outside: `holdfast:acquire`, `holdfast:release` and
 * `holdfast:extend` trace operations from begin to end, `holdfast:lost` tells of lost locks.
 *
 * Source: <https://nodejs.org/api/diagnostics_channel.html#class-tracingchannel>
 */

import { channel, type TracingChannel, tracingChannel } from 'node:diagnostics_channel';
import type { LockLostError } from './errors.js';
import type { Lock } from './lock.js';

/**
 * What the subscribers of the tracing channels get. Node adds `result` (of an acquire the lock, or
 * `null`) or `error` when the operation has ended.
 *
 * @example
 * ```ts
 * import { tracingChannel } from 'node:diagnostics_channel'
 * import type { LockTrace } from 'holdfast'
 *
 * tracingChannel('holdfast:acquire').asyncEnd.subscribe((message) => {
 *   const { lock, server } = message as LockTrace
 *   console.error(lock, server)
 * })
 * ```
 */
export interface LockTrace {
  /** The lock's name; of several that are acquired together, their names with `, ` in between. */
  readonly lock: string;
  /** The server, without login. */
  readonly server: string;
}

/**
 * What the subscribers of `holdfast:lost` get.
 *
 * @example
 * ```ts
 * import { subscribe } from 'node:diagnostics_channel'
 * import type { LockLostMessage } from 'holdfast'
 *
 * subscribe('holdfast:lost', (message) => {
 *   const { lock, error, holder } = message as LockLostMessage
 *   console.error(lock, error.reason, holder.fence)
 * })
 * ```
 */
export interface LockLostMessage extends LockTrace {
  /** How it was lost. */
  readonly error: LockLostError;
  /** The lock as its holder has it. */
  readonly holder: Lock;
}

/** @internal */
export const tracing = {
  acquire: tracingChannel<LockTrace, LockTrace>('holdfast:acquire'),
  extend: tracingChannel<LockTrace, LockTrace>('holdfast:extend'),
  lost: channel('holdfast:lost'),
  release: tracingChannel<LockTrace, LockTrace>('holdfast:release'),
};

/**
 * Runs `operation`, and traces it if anybody watches.
 *
 * @internal
 */
export function traced<T>(
  on: TracingChannel<LockTrace, LockTrace>,
  lock: string,
  server: string,
  operation: () => Promise<T>,
): Promise<T> {
  return on.hasSubscribers ? on.tracePromise(operation, { lock, server }) : operation();
}
