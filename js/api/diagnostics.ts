/**
 * Diagnostics channels, for monitoring: `holdfast:acquire`, `holdfast:release` and `holdfast:extend` trace
 * operations, `holdfast:lost` reports lost locks.
 *
 * Source: <https://nodejs.org/api/diagnostics_channel.html#class-tracingchannel>
 */

import { channel, type TracingChannel, tracingChannel } from 'node:diagnostics_channel';
import type { ErrorContext } from '../internal/outcome.js';
import type { LockLostError } from './errors.js';
import type { Lock } from './lock.js';

/**
 * The message of the tracing channels. Node adds `result` (the lock of an acquire, or `null`) or `error` when
 * the operation has ended.
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
  /** The lock's name; if several are acquired together, their names, separated by `, `. */
  readonly lock: string;
  /** The server, without login. */
  readonly server: string;
  /** The manager: its `clientId`. */
  readonly clientId: string;
  /**
   * The lock that is extended or released; an acquire has its own as `result`.
   *
   * @default undefined
   */
  readonly holder?: Lock;
}

/**
 * The message of `holdfast:lost`.
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
  /** How the lock was lost. */
  readonly error: LockLostError;
  /** The lock that the holder has. */
  readonly holder: Lock;
}

/** @internal */
export const tracing = {
  acquire: tracingChannel<LockTrace, LockTrace>('holdfast:acquire'),
  extend: tracingChannel<LockTrace, LockTrace>('holdfast:extend'),
  lost: channel('holdfast:lost'),
  release: tracingChannel<LockTrace, LockTrace>('holdfast:release'),
};

const EVENTS = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;

/**
 * Whether a channel has subscribers. The tracing channels of Bun do not tell; the channels of their events do.
 *
 * @internal
 */
export function isTraced(on: TracingChannel<LockTrace, LockTrace>): boolean {
  const told: boolean | undefined = on.hasSubscribers;
  return told ?? EVENTS.some((event) => on[event].hasSubscribers);
}

/** The subject of an operation. */
interface Traced {
  /** The lock's name. */
  readonly name: string;
  readonly errors: ErrorContext;
  readonly holder?: Lock;
}

/**
 * Runs `operation`, and traces it if the channel has subscribers.
 *
 * @internal
 */
export function traced<T>(
  on: TracingChannel<LockTrace, LockTrace>,
  { name, errors, holder }: Traced,
  operation: () => Promise<T>,
): Promise<T> {
  if (!isTraced(on)) return operation();
  const { server, client: clientId } = errors;
  const trace = { lock: name, server, clientId };
  return on.tracePromise(operation, holder === undefined ? trace : { ...trace, holder });
}
