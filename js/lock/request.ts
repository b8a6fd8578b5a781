/** The record of one acquire, from the check of its options to the call of the addon. */

import type { AcquireNumbers } from '../native/records.js';

/** A call that takes several locks one by one. @internal */
export interface SetCall {
  /** For how long it has waited, in ms. */
  readonly waited: () => number;
  /** How many locks it asks for. */
  readonly size: number;
}

/** A caller's request, with every default filled in. The fields that it inherits cross the boundary. @internal */
export interface AcquireRequest extends AcquireNumbers {
  readonly signal: AbortSignal | undefined;
  readonly reentrant: boolean;
  /** The owner that the caller has named. */
  readonly owner?: string | undefined;
  /** The call, if it takes several locks one by one. */
  readonly set?: SetCall;
  /** Whether the end of a request or a block awaits the release. */
  readonly awaitRelease: boolean;
  /** The calls that led here, if `HOLDFAST_TRACE` is 1. */
  readonly origin: string | undefined;
}
