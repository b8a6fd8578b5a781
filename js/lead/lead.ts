/** Leader election: campaigns for a lock, runs the callback for each term, and campaigns again. */

import type { Taker } from '../acquire/taker.js';
import { onAbort } from '../base/abort.js';
import { LockLostError, StaleFenceError } from '../base/errors.js';
import { leaderLockOf } from '../base/names.js';
import type { SharedHandle } from '../lock/lock.js';
import type { NestedCall } from '../request/nested-call.js';
import { runUnder } from '../request/request.js';
import type { Campaigns } from './campaigns.js';
import type { LeadRequest, Term } from './options.js';
import { LeaderTerm } from './term.js';

/**
 * The pause after a term that was shorter than its lease, or that never began since the server refused. Each is twice as
 * long as the one before: a callback that fails at once must not keep the servers busy.
 */
const PAUSE_MS_FIRST = 100;
const PAUSE_MS_MAX = 10_000;

/** The timers of the process: a test may replace them. */
const { clearTimeout, setTimeout } = globalThis;

/** See `LockManager.lead`. `nested`: the call is made under a request that holds the lock of the leader. @internal */
export async function lead(
  taker: Taker,
  campaigns: Campaigns,
  name: string,
  options: LeadRequest,
  callback: (term: Term) => unknown,
  nested: NestedCall | undefined,
): Promise<void> {
  const campaign = campaigns.begin(name);
  const elect = async () => {
    const taken = taker.take(leaderLockOf(name), options.request, nested);
    // It answers no `null` to a request that waits.
    const lock = (await campaign.whileWaiting(taken)) as SharedHandle;
    return new LeaderTerm(name, lock, campaigns);
  };
  const run = (term: LeaderTerm) => serve(taker, term, options.request.signal, callback);
  try {
    await repeat(elect, run, options, campaigns.closing);
  } finally {
    campaign.end();
  }
}

/** Campaigns and serves, until the caller's signal is aborted or the manager closes. */
async function repeat(
  elect: () => Promise<LeaderTerm>,
  run: (term: LeaderTerm) => Promise<void>,
  { request, onError }: LeadRequest,
  closing: AbortSignal,
): Promise<void> {
  const { signal: stop, ttl } = request;
  const wasOpen = !closing.aborted;
  const isOver = () => stop?.aborted === true || closing.aborted;
  let pause = 0;
  while (stop?.aborted !== true) {
    let term: LeaderTerm | undefined;
    try {
      term = await elect();
      await run(term);
    } catch (error) {
      if (term === undefined && wasOpen && isOver()) return;
      if (onError === undefined || !wasOpen) throw error;
      onError(error);
    }
    if (isOver()) return;
    pause = (term?.lasted ?? 0) >= ttl ? 0 : nextPause(pause);
    await sleepUnless(pause, stop, closing);
  }
}

function nextPause(last: number): number {
  return last === 0 ? PAUSE_MS_FIRST : Math.min(2 * last, PAUSE_MS_MAX);
}

/**
 * Runs the callback for one term, and resigns when it has ended: not before, since it may do a leader's work until then.
 * Rejects with its error, unless the callback only broke off because its term was over.
 */
async function serve(
  taker: Taker,
  term: LeaderTerm,
  stop: AbortSignal | undefined,
  callback: (term: Term) => unknown,
): Promise<void> {
  let brokeOff = false;
  const run = async () => {
    try {
      await callback(term);
    } catch (error) {
      brokeOff = isBreakOff(error, term);
      throw error;
    }
  };
  term.begin(stop);
  try {
    await runUnder(taker, [term.lock], run);
    term.end(term.signal.aborted ? 'resigned' : 'returned');
  } catch (error) {
    const isLoss = isLossOf(term.lock.name, error);
    term.end(isLoss ? 'lost' : brokeOff ? 'resigned' : 'threw');
    if (!isLoss && !brokeOff) throw error;
  }
}

/** Whether the end of the term explains an error of its callback. */
function isBreakOff(error: unknown, { signal }: LeaderTerm): boolean {
  if (!signal.aborted) return false;
  const { name, cause } = Object(error) as { name?: unknown; cause?: unknown };
  const isAbort = error === signal.reason || cause === signal.reason || name === 'AbortError';
  return isAbort || error instanceof LockLostError || error instanceof StaleFenceError;
}

/** Whether an error says that the term has lost its lock. A callback that released it has lost nothing. */
function isLossOf(lock: string, error: unknown): boolean {
  return error instanceof LockLostError && error.lock === lock && error.reason !== 'released';
}

/** Waits for a while, or until one of the signals is aborted. */
function sleepUnless(ms: number, ...signals: (AbortSignal | undefined)[]): Promise<void> {
  if (ms === 0) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      for (const forget of forgets) forget();
      resolve();
    };
    const timer = setTimeout(end, ms);
    const forgets = signals.map((signal) => (signal ? onAbort(signal, end) : () => {}));
  });
}
