/**
 * `Redlock` of redlock 4, on holdfast.
 *
 * @packageDocumentation
 */

import type { Client as AnyClient } from '../redlock/index.js';
import type { LockError as AnyLockError } from './errors.js';
import type {
  Answer as AnyAnswer,
  Callback as AnyCallback,
  Disposer as AnyDisposer,
} from './promise.js';
import { type Lock as AnyLock, type Options as AnyOptions, Redlock as Class } from './redlock.js';

/** As in redlock 4, the module is the class. */
class Redlock extends Class {
  /** The class itself, for an import by name. */
  static readonly Redlock = Redlock;
}

declare namespace Redlock {
  export type Answer<T> = AnyAnswer<T>;
  export type Callback<T> = AnyCallback<T>;
  export type Client = AnyClient;
  export type Disposer = AnyDisposer<AnyLock>;
  export type Lock = AnyLock;
  export type LockError = AnyLockError;
  export type Options = AnyOptions;
}

export = Redlock;
