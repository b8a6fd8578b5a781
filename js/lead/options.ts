/** The options of `lead`, what it gives its callback, and what others see of a leader. */

import { fillWaiting, type LockDefaults } from '../acquire/check-options.js';
import { checkFunction, checkObject } from '../base/checks.js';
import type { Lock } from '../lock/lock.js';
import type { AcquireOptions } from '../lock/options.js';
import type { AcquireRequest } from '../lock/request.js';
import { LOCK_TIMES } from '../lock/times.js';

/**
 * Options of `lead`.
 *
 * @example
 * ```ts
 * const stop = new AbortController()
 * const leading = locks.lead('scheduler', { ttl: 15_000, signal: stop.signal }, async () => stop.abort())
 * await leading
 * ```
 */
export interface LeadOptions
  extends Pick<AcquireOptions, 'label' | 'signal' | 'stallTimeout' | 'ttl'> {
  /**
   * Ends the campaign, and the term if this process leads: `term.signal` is aborted, and the next in the queue leads as
   * soon as the callback has ended. `lead` then resolves.
   *
   * @default undefined
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Gets each error of a callback, and each refusal of the server: `lead` then goes on, and campaigns again after the
   * back-off. Without it, such an error ends the campaign, and `lead` rejects with it.
   *
   * @default undefined
   */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/**
 * A term: the time for which this process leads.
 *
 * @example
 * ```ts
 * import type { Term } from 'holdfast'
 *
 * async function schedule({ signal, fence }: Term): Promise<void> {
 *   while (!signal.aborted) await settle(fence, signal)
 * }
 * ```
 */
export interface Term {
  /** The name that was given to `lead`. */
  readonly name: string;
  /** The fencing token of this term: greater than that of every earlier term of this name. */
  readonly fence: number;
  /** When the term began, by the clock of this machine. */
  readonly since: Date;
  /**
   * Aborted when this process should not lead any more: with a `LockLostError` when its lease ends, before another process can
   * lead; soon after it was deposed or the server lost its data; or when the manager is closed. With the reason of the
   * caller's own `signal` when that is aborted. To read it, or its `aborted`, reads the clock, as `lock.held` does.
   */
  readonly signal: AbortSignal;
  /** The lock of the term, for `holdfast/fence`, and for `held` and `assertHeld`. Its name is `leader:` and `name`. */
  readonly lock: Lock;
}

/**
 * Why a term has ended: the callback has `returned`; it `threw`; it ended since it was told to, by the signal or
 * the end of the manager (`resigned`); or the lease was `lost`.
 *
 * @example
 * ```ts
 * locks.on('stepDown', (term, end) => {
 *   if (end === 'lost') console.error(`${term.name} may have a new leader already`)
 * })
 * ```
 */
export type TermEnd = 'lost' | 'resigned' | 'returned' | 'threw';

/**
 * The leader of a name, as the server knows it.
 *
 * @example
 * ```ts
 * const leader = await locks.leader('scheduler')
 * console.log(leader === null ? 'nobody leads' : `${leader.label} leads`) // nobody leads
 * ```
 */
export interface Leader {
  /** The name that was given to `lead`. */
  readonly name: string;
  /** The manager of the process that leads: its `clientId`. */
  readonly clientId: string;
  /** The leader's `label`, by default its host and process; `null` if it has none. */
  readonly label: string | null;
  /** How long its lease lasts unless it is renewed, in ms. */
  readonly ttl: number | null;
}

/**
 * One name for which a manager campaigns.
 *
 * @example
 * ```ts
 * for (const { name, leading } of locks.stats().leads) console.log(name, leading)
 * ```
 */
export interface LeadState {
  /** The name that was given to `lead`. */
  readonly name: string;
  /** Whether this process leads now. */
  readonly leading: boolean;
  /** Whether it waits for the lead now. Neither during the pause after a short term. */
  readonly waiting: boolean;
}

/** The options of a campaign, checked. @internal */
export interface LeadRequest {
  readonly request: AcquireRequest;
  readonly onError: ((error: unknown) => void) | undefined;
}

const OPTIONS = ['label', 'onError', 'signal', 'stallTimeout', 'ttl'];

/** @internal */
export function checkLeadOptions(options: unknown, defaults: LockDefaults): LeadRequest {
  const { onError, ...given } = checkObject<LeadOptions>(options, OPTIONS, 'lead', LOCK_TIMES);
  if (onError !== undefined) checkFunction(onError, 'onError');
  // A leader leads until it resigns or is lost, whatever the defaults of other locks are.
  const always = { renew: true, maxHold: Number.POSITIVE_INFINITY, linger: 0, awaitRelease: true };
  const wait = Number.POSITIVE_INFINITY;
  return { request: fillWaiting({ ...given, wait }, { ...defaults, ...always }), onError };
}
