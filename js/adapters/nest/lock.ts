/** The decorator for methods that run under a lock. */

import type { RequestOptions } from '../../lock/options.js';
import { runAs } from './current.js';
import { nameOf } from './name.js';
import { placeOf, wrap } from './wrap.js';

/**
 * Options of `@Lock`: those of `request`, and which manager.
 *
 * @example
 * ```ts
 * import type { LockMethodOptions } from 'holdfast/nest'
 *
 * const options: LockMethodOptions = { wait: 5_000, manager: 'stock' }
 * ```
 */
export interface LockMethodOptions extends Omit<RequestOptions, 'ifAvailable' | 'signal'> {
  /**
   * The name of the manager.
   *
   * @default undefined, the manager without a name
   */
  readonly manager?: string | undefined;
}

/**
 * A decorator for asynchronous methods whose first parameters are `Args`.
 *
 * @example
 * ```ts
 * import { Lock, type LockDecorator } from 'holdfast/nest'
 *
 * const underOrder: LockDecorator<[number]> = Lock((order: number) => `order:${order}`)
 * ```
 */
export type LockDecorator<Args extends unknown[]> = <All extends [...Args, ...unknown[]], Result>(
  target: object,
  key: string | symbol,
  method: TypedPropertyDescriptor<(...args: All) => Promise<Result>>,
) => void;

/**
 * Runs each call of a method under a lock, as `request` of the manager does: calls with the same name run one after
 * another, whichever process they are in. For methods of what Nest makes: providers and controllers, of any scope.
 * `currentLock()` is the lock.
 *
 * @param name - The name of the lock. `${0}` stands for the first argument, `${1.order.id}` for a property of the second;
 *   each must be a text or a number. Or a function of the arguments.
 * @throws TypeError for a wrong name, when the class is defined; and from the method, for arguments without what the name
 *   needs.
 * @throws From the method, what `request` throws.
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import { Lock } from 'holdfast/nest'
 *
 * @Injectable()
 * class Stock {
 *   @Lock('item:${0.id}', { wait: 5_000 })
 *   async sell(item: { id: string }, n: number): Promise<void> {}
 *
 *   @Lock((from: string, to: string) => `route:${[from, to].sort().join('-')}`)
 *   async book(from: string, to: string): Promise<void> {}
 * }
 * ```
 */
export function Lock(name: string, options?: LockMethodOptions): LockDecorator<[]>;
export function Lock<Args extends unknown[]>(
  name: (...args: Args) => string,
  options?: LockMethodOptions,
): LockDecorator<Args>;
export function Lock(name: unknown, options: LockMethodOptions = {}): LockDecorator<[]> {
  const { manager, ...request } = options;
  return (target, key, descriptor) => {
    const where = placeOf('Lock', target, key);
    const named = nameOf(name, where, descriptor?.value?.length);
    wrap(target, descriptor, { where, manager }, (locks, self, args, method) =>
      locks.request(named(self, args), request, (lock) => runAs({ lock }, method)),
    );
  };
}
