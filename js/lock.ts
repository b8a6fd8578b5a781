import { LossCode, OpKind, OutcomeCode, type Port } from './bridge.js';
import { traced, tracing } from './diagnostics.js';
import { LockLostError, type LockLostReason } from './errors.js';
import { checkTtl } from './options.js';
import { type Context, toError } from './outcome.js';

/**
 * A lock that this process holds, until it is released or its lease runs out.
 *
 * @example
 * ```ts
 * const lock = await locks.acquire('item:42')
 * try {
 *   await db.query('UPDATE stock SET n = n - 1, fence = $1 WHERE id = 42 AND fence < $1', [lock.fence])
 * } finally {
 *   await lock.release()
 * }
 * ```
 */
export class Lock implements AsyncDisposable {
  /** The name it was acquired by. */
  readonly name: string;
  /**
   * The fencing token: a safe integer, strictly greater for every later owner of this lock. A
   * resource that refuses smaller fences than it has seen is safe even from an owner that was
   * paused past the end of its lease.
   *
   * Source: <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>
   */
  readonly fence: number;

  readonly #port: Port;
  readonly #context: Context;
  readonly #lease: number;
  readonly #label: string;
  #released = false;
  /** Whether anybody may have the token: then no other caller may own the lock with it. */
  #exported = false;
  /** Made when the lock is lost, with the frames of whoever finds it out first. */
  #lostBecause: LockLostReason | undefined;
  /** Made when somebody asks for it: most locks are released unwatched. */
  #abort: AbortController | undefined;

  /** @internal */
  constructor(
    port: Port,
    context: Context,
    name: string,
    label: string,
    lease: number,
    fence: number,
    onLost: (lock: Lock, error: LockLostError) => void,
  ) {
    this.name = name;
    this.fence = fence;
    this.#port = port;
    this.#context = context;
    this.#lease = lease;
    this.#label = label;
    port.watch(lease, (reason) => {
      this.#lostBecause = REASONS[reason] ?? 'expired';
      const error = this.#lost();
      this.#abort?.abort(error);
      onLost(this, error);
    });
  }

  /** The owner token: what stands in Redis while this lock is held. */
  get token(): string {
    this.#exported = true;
    const attempt = Math.floor(this.#lease / GENERATIONS);
    const token = `hf1.${this.#context.client}.${attempt}`;
    return this.#label === '' ? token : `${token}.${this.#label}`;
  }

  /**
   * Whether the lock is still held. Counted by a monotonic clock from before it was granted, so it
   * turns false before the server can let another in; right even in the first line after the event
   * loop was blocked.
   */
  get held(): boolean {
    return !this.#released && this.#port.remaining(this.#lease) > 0;
  }

  /** How long the lock is still held without another `extend`, in ms; 0 when it is not held. */
  get remaining(): number {
    return this.#released ? 0 : Math.floor(this.#port.remaining(this.#lease));
  }

  /**
   * Aborted, with a `LockLostError` as its reason, the moment the lock is lost and before the server
   * can let another in; never by a release.
   *
   * @example
   * ```ts
   * await fetch(url, { signal: lock.signal })
   * ```
   */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#lostBecause !== undefined) this.#abort.abort(this.#lost());
    }
    return this.#abort.signal;
  }

  /**
   * Does nothing while the lock is held.
   *
   * @throws LockLostError if it is not.
   */
  assertHeld(): void {
    if (!this.held) throw this.#lost();
  }

  /**
   * Makes the lease last at least `ttl` ms from now. Never shortens it.
   *
   * @param ttl - In whole ms from 50 to 86 400 000; by default as long as it was last given.
   * @throws LockLostError if the lock is not held any more.
   * @throws LockConnectionError, LockServerError or LockQuorumError if it could not be done within
   *   `commandTimeout`, whether there was no answer, a refusal or no majority; the lock is then still
   *   held for `remaining` ms. A refusal that time does not mend rejects at once.
   */
  async extend(ttl?: number): Promise<void> {
    if (ttl !== undefined) checkTtl(ttl);
    return traced(tracing.extend, this.name, this.#context.server, () => this.#extend(ttl));
  }

  async #extend(ttl?: number): Promise<void> {
    if (this.#released) throw this.#lost();
    const outcome = await this.#port.submit(OpKind.Extend, [this.#lease, ttl ?? -1]);
    if (outcome.code === OutcomeCode.Done) return;
    if (outcome.code === OutcomeCode.Lost) throw this.#lost();
    throw toError(outcome, this.#context, 'extend', this.name);
  }

  /**
   * Gives the lock up. `held` is false from the moment of this call.
   *
   * @returns `true` if this call freed it, `false` if it had been lost or released before.
   * @throws LockConnectionError if no answer came within `commandTimeout`; the release is repeated
   *   when the server can be reached again.
   */
  release(): Promise<boolean> {
    return traced(tracing.release, this.name, this.#context.server, () => this.#release());
  }

  async #release(): Promise<boolean> {
    if (this.#released) return false;
    this.#released = true;
    this.#port.forget(this.#lease);
    const exported = this.#exported ? 1 : 0;
    const outcome = await this.#port.submit(OpKind.Release, [this.#lease, exported]);
    if (outcome.code === OutcomeCode.Done) return true;
    // A manager that is closed has given everything back.
    if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Closed) return false;
    throw toError(outcome, this.#context, 'release', this.name);
  }

  /** Releases the lock at the end of an `await using` scope. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #lost(): LockLostError {
    const reason = this.#released ? 'released' : (this.#lostBecause ?? 'expired');
    return new LockLostError(`lock "${this.name}" ${WHAT_HAPPENED[reason]}`, this.name, reason);
  }
}

/** A lease is numbered by its attempt and by how often the lock was handed on since. */
const GENERATIONS = 16;

const REASONS: Readonly<Record<number, LockLostReason>> = {
  [LossCode.Expired]: 'expired',
  [LossCode.MaxHold]: 'maxHold',
  [LossCode.Stalled]: 'stalled',
};

const WHAT_HAPPENED: Readonly<Record<LockLostReason, string>> = {
  expired: 'is not held any more: its lease ran out, or its key was deleted',
  maxHold: 'is not held any more: it was held for maxHold',
  released: 'was released',
  stalled: 'is not held any more: the event loop was blocked for longer than stallTimeout',
};
