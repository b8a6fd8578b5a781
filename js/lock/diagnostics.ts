/**
 * Diagnostics channels, for monitoring: `holdfast:acquire`, `holdfast:release` and `holdfast:extend` trace
 * operations, `holdfast:lost` reports lost locks.
 *
 * Source: <https://nodejs.org/api/diagnostics_channel.html#class-tracingchannel>
 */

import { channel, type TracingChannel, tracingChannel } from 'node:diagnostics_channel';
import type { LockError, LockLostError } from '../base/errors.js';
import type { Lock } from './lock.js';
import type { ErrorContext } from './outcome.js';

/**
 * The message of the tracing channels. When the operation has ended, Node adds `result` (of an acquire the lock, the
 * `LockSet`, or `null` if `tryAcquire` found one held) or `error`, and holdfast the `outcome` of an acquire.
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
  /** The lock's name; of an acquire of several, their names, separated by `, `. */
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
  /**
   * How an acquire has ended: `acquired`; `taken`, if `tryAcquire` found a lock held; `aborted`, if the caller's signal
   * ended it, whatever its reason; or the code of the error.
   *
   * @default undefined until then, and of other operations
   */
  readonly outcome?: string;
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
  const known: boolean | undefined = on.hasSubscribers;
  return known ?? EVENTS.some((event) => on[event].hasSubscribers);
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
  subject: Traced,
  operation: () => Promise<T>,
): Promise<T> {
  return isTraced(on) ? on.tracePromise(operation, traceOf(subject)) : operation();
}

/**
 * Runs an acquire, which answers a lock, a `LockSet` or `null`, and traces it with its outcome if somebody listens.
 *
 * @param signal - May end it, with any value as the error.
 * @internal
 */
export function tracedAcquire<T>(
  subject: Traced,
  signal: AbortSignal | undefined,
  acquire: () => Promise<T>,
): Promise<T> {
  if (!isTraced(tracing.acquire)) return acquire();
  const trace: LockTrace & { outcome?: string } = traceOf(subject);
  // The outcome is there before Node publishes the end.
  const observed = async () => {
    try {
      const result = await acquire();
      trace.outcome = result === null ? 'taken' : 'acquired';
      return result;
    } catch (error) {
      trace.outcome = wordFor(error, signal);
      throw error;
    }
  };
  return tracing.acquire.tracePromise(observed, trace);
}

function traceOf({ name, errors, holder }: Traced): LockTrace {
  const { server, client: clientId } = errors;
  const trace = { lock: name, server, clientId };
  return holder === undefined ? trace : { ...trace, holder };
}

/** The reason of a signal is the caller's own: it may have no code, or one that means something else. */
function wordFor(error: unknown, signal: AbortSignal | undefined): string {
  if (signal?.aborted && error === signal.reason) return 'aborted';
  return (error as Partial<LockError> | null | undefined)?.code ?? 'error';
}
