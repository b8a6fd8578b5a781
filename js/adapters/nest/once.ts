/** The decorator for methods that run once per slot. */

import { LockClosedError } from '../../base/errors.js';
import type { OnceOptions } from '../../once/options.js';
import { runAs } from './current.js';
import { shutDown } from './module.js';
import { nameOf } from './name.js';
import { placeOf, wrap } from './wrap.js';

/**
 * Options of `@Once`: those of `runOnce`, and which manager.
 *
 * @example
 * ```ts
 * import type { OnceMethodOptions } from 'holdfast/nest'
 *
 * const options: OnceMethodOptions = { every: '1h', retry: true }
 * ```
 */
export interface OnceMethodOptions extends Omit<OnceOptions, 'signal' | 'slot'> {
  /**
   * The name of the manager.
   *
   * @default undefined, the manager without a name
   */
  readonly manager?: string | undefined;
  /**
   * The name of the slot, as in `@Lock`: a text that may contain arguments, or a function of them. Either this or `every`.
   *
   * @default undefined
   */
  // biome-ignore lint/suspicious/noExplicitAny: the arguments of any method
  readonly slot?: string | ((...args: any[]) => string) | undefined;
}

/**
 * A decorator for asynchronous methods that may return nothing.
 *
 * @example
 * ```ts
 * import { Once, type OnceDecorator } from 'holdfast/nest'
 *
 * const hourly = (job: string): OnceDecorator => Once(job, { every: '1h' })
 * ```
 */
export type OnceDecorator = <Method extends (...args: never[]) => Promise<unknown>>(
  target: object,
  key: string | symbol,
  method: TypedPropertyDescriptor<Method> & MayReturnNothing<Method>,
) => void;

/** Accepts any method that may return `undefined`. For others it is a text, so the compiler's error says why. */
type MayReturnNothing<Method> = Method extends (...args: never[]) => Promise<infer Result>
  ? undefined extends Result
    ? unknown
    : '@Once returns undefined if another process has run the slot: let the method return Promise<... | undefined>'
  : never;

/**
 * Runs a method at most once per slot, in one of all processes that call it, as `runOnce` of the manager does: for
 * methods that `@nestjs/schedule` calls in every process at the same time. It stands above `@Cron` or below it.
 * `currentLock()` is the lock, `currentSlot()` the slot. A call whose body does not run returns `undefined`, or with
 * `keepResult` what the body has returned. While the application shuts down, no body is begun.
 *
 * @param key - The name of the lock, as in `@Lock`.
 * @throws TypeError for a wrong name, when the class is defined.
 * @throws From the method, what `runOnce` throws; `@nestjs/schedule` logs that.
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import { Cron } from '@nestjs/schedule'
 * import { Once } from 'holdfast/nest'
 *
 * @Injectable()
 * class Reports {
 *   @Cron('0 0 * * * *')
 *   @Once('report', { every: '1h' })
 *   async build(): Promise<void> {}
 * }
 * ```
 */
export function Once(key: string, options: OnceMethodOptions): OnceDecorator {
  const { manager, slot, ...rest } = options;
  return (target, property, descriptor) => {
    const where = placeOf('Once', target, property);
    const named = nameOf(key, where, descriptor?.value?.length);
    const slotted = slot === undefined ? undefined : nameOf(slot, where, descriptor?.value?.length);
    wrap(target, descriptor, { where, manager }, async (locks, self, args, method) => {
      const once = slotted === undefined ? rest : { ...rest, slot: slotted(self, args) };
      let isRun = false;
      try {
        const result = await locks.runOnce(named(self, args), once, (lock, name) => {
          isRun = true;
          return runAs({ lock, slot: name }, method);
        });
        return result.value;
      } catch (error) {
        // The timers of other providers may run a moment longer, and another process has the slot.
        if (!isRun && error instanceof LockClosedError && shutDown.has(locks)) return undefined;
        throw error;
      }
    });
  };
}
