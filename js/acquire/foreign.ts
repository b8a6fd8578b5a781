/** Leases of other code: they are renewed from the native thread, and nothing else is done to them. */

import { type ErrorContext, toError } from '../lock/outcome.js';
import type { NativeChannel } from '../native/channel.js';
import {
  extendOperation,
  isGrant,
  keepForeignOperation,
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

/** The lease of other code that is renewed as long as its key has its value. @internal */
export class ForeignLease {
  readonly #channel: NativeChannel;
  readonly #errors: ErrorContext;
  readonly #key: string;
  readonly #lease: number;

  private constructor(channel: NativeChannel, errors: ErrorContext, key: string, lease: number) {
    this.#channel = channel;
    this.#errors = errors;
    this.#key = key;
    this.#lease = lease;
  }

  /** Begins to renew it, without a request before a third of the lease is over. */
  static async begin(
    channel: NativeChannel,
    errors: ErrorContext,
    { key, value, ...times }: ForeignLock,
  ): Promise<ForeignLease> {
    const outcome = await channel.submit(keepForeignOperation(key, value, times));
    if (!isGrant(outcome)) throw toError(outcome, errors, 'keep', key);
    return new ForeignLease(channel, errors, key, readGrant(outcome).lease);
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
    const outcome = await this.#channel.submit(extendOperation(this.#lease));
    if (outcome.code === OutcomeCode.Lost) return false;
    if (outcome.code === OutcomeCode.Done) return true;
    throw toError(outcome, this.#errors, 'keep', this.#key);
  }

  /** Renews it no more. The key stays as it is. */
  end(): void {
    void this.#channel.submit(releaseOperation(this.#lease, false));
  }
}
