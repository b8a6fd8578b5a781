/** Leases of other code: they are renewed from the native thread, and nothing else is done to them. */

import { type ErrorContext, toError } from '../lock/outcome.js';
import type { NativeChannel } from '../native/channel.js';
import type { LockHandle } from '../native/handles.js';
import {
  CLOSED_LOSS,
  extendOperation,
  isGrant,
  keepForeignOperation,
  LossCode,
  OutcomeCode,
  readGrant,
  releaseOperation,
} from '../native/records.js';

/** The lock of other code: its key, prefix included, and the value that this code has put there. @internal */
export interface ForeignLock {
  readonly key: string;
  readonly value: string;
  /** Its lease, in ms. */
  readonly ttl: number;
  /** For how long it has had this lease, in ms. At most a third of that counts. */
  readonly age: number;
  /** For how long the event loop may be blocked while the lease is renewed, in ms. */
  readonly stallTimeout: number;
}

/** Why a lease of other code is renewed no more, though its key may have its value still. @internal */
export type UnkeptReason = 'closed' | 'expired' | 'stalled';

/** The lease of other code that is renewed as long as its key has its value. @internal */
export class ForeignLease implements LockHandle {
  readonly #channel: NativeChannel;
  readonly #errors: ErrorContext;
  readonly #key: string;
  readonly lease: number;
  /** It belongs to a hold of other code, whose age tells nothing. */
  readonly since = 0;
  readonly lasts = true;
  place = 0;
  #isOver = false;
  #unkept: UnkeptReason | undefined;
  #tell: ((reason: UnkeptReason) => void) | undefined;

  private constructor(channel: NativeChannel, errors: ErrorContext, key: string, lease: number) {
    this.#channel = channel;
    this.#errors = errors;
    this.#key = key;
    this.lease = lease;
  }

  /** Begins to renew it, without a request before a third of the lease is over. */
  static async begin(
    channel: NativeChannel,
    errors: ErrorContext,
    { key, value, ...times }: ForeignLock,
  ): Promise<ForeignLease> {
    const outcome = await channel.submit(keepForeignOperation(key, value, times));
    if (!isGrant(outcome)) throw toError(outcome, errors, 'keep', key);
    const lease = new ForeignLease(channel, errors, key, readGrant(outcome).lease);
    channel.watch(lease);
    return lease;
  }

  /** The server, without login. */
  get server(): string {
    return this.#errors.server;
  }

  /**
   * Renews it now. Answers whether the key has the value.
   *
   * @throws LockConnectionError, LockServerError if that is unknown.
   */
  async renew(): Promise<boolean> {
    const outcome = await this.#channel.submit(extendOperation(this.lease));
    if (outcome.code === OutcomeCode.Lost) return false;
    if (outcome.code === OutcomeCode.Done) return true;
    throw toError(outcome, this.#errors, 'keep', this.#key);
  }

  /** Has `tell` called, once, if the renewal ends before `end`, and not because the key is gone or has another value. */
  onUnkept(tell: (reason: UnkeptReason) => void): void {
    if (this.#unkept === undefined) this.#tell = tell;
    else tell(this.#unkept);
  }

  /** @internal */
  lose(reason: number): () => void {
    // Its code has released the key, or another has it by now.
    if (reason === LossCode.Ended) return () => {};
    const unkept = reasonOf(reason);
    if (unkept === 'closed' && this.#isOver) return () => {};
    this.#unkept = unkept;
    return () => this.#tell?.(unkept);
  }

  /** Its code need not keep this object. @internal */
  standIn(): undefined {
    return undefined;
  }

  /** @internal */
  abandon(): () => void {
    return () => {};
  }

  /** Renews it no more. The key stays as it is. */
  end(): void {
    this.#isOver = true;
    // A loss from before, while the event loop was blocked, is read ahead of this outcome.
    const ended = this.#channel.submit(releaseOperation(this.lease, false));
    void ended.then(() => this.#channel.forget(this));
  }
}

function reasonOf(loss: number): UnkeptReason {
  if (loss === CLOSED_LOSS) return 'closed';
  return loss === LossCode.Stalled ? 'stalled' : 'expired';
}
