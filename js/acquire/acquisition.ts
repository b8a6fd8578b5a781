import { termsOf } from '../base/tokens.js';
import { HeldLock, type ManagerContext } from '../lock/held-lock.js';
import { setOrigin } from '../lock/origins.js';
import { toError } from '../lock/outcome.js';
import type { AcquireRequest } from '../lock/request.js';
import type { OutcomeReader } from '../native/operations.js';
import {
  AcquireOperation,
  isGrant,
  LabelKind,
  type Outcome,
  OutcomeCode,
  readGrant,
  SHARE_EXCLUSIVE,
  WAIT_NEVER,
} from '../native/records.js';

/** The acquire of one lock, until its outcome is there. @internal */
export class Acquisition extends AcquireOperation implements OutcomeReader<HeldLock | null> {
  readonly #manager: ManagerContext;
  declare protected readonly request: AcquireRequest;

  constructor(manager: ManagerContext, name: string, request: AcquireRequest) {
    super(name, request);
    this.#manager = manager;
  }

  /** Whether it was begun by one of these requests. */
  isBy(requests: ReadonlySet<AcquireRequest>): boolean {
    return requests.has(this.request);
  }

  /** The lock, or `null` if it is held and the request does not wait. Throws the error that says why there is none. */
  read(outcome: Outcome): HeldLock | null {
    const isHeld = outcome.code === OutcomeCode.Held && this.request.wait === WAIT_NEVER;
    return isHeld ? null : this.lock(outcome);
  }

  /** The lock. Throws the error that says why there is none; `action`: what has failed. */
  lock(outcome: Outcome, action = 'acquire'): HeldLock {
    const { share, permits, awaitRelease, origin, set } = this.request;
    // A lock of an owner is left to expire, but renewed as long as its handle lives.
    const leaveToExpire = this.request.leaveToExpire && !this.request.renew;
    const { name } = this;
    if (!isGrant(outcome)) throw toError(outcome, this.#manager.errors, action, name, set);
    const { lease, fence, label = this.request.label } = readGrant(outcome);
    // One literal: the copy of another object into it costs an acquire a twentieth.
    const lock = HeldLock.begin(this.#manager, {
      name,
      label,
      isToken: (this.request.labelKind ?? LabelKind.Text) !== LabelKind.Text,
      mode: share === SHARE_EXCLUSIVE ? 'exclusive' : 'shared',
      terms: termsOf(share, permits),
      lease,
      fence,
      leaveToExpire,
      awaitRelease,
    });
    setOrigin(lock, origin);
    return lock;
  }
}
