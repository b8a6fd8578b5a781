/** The decorator for methods that run in one of all processes, for as long as that one leads. */

import { Logger } from '@nestjs/common';
import type { LeadOptions, Term } from '../../lead/options.js';
import { runAs } from './current.js';
import { nameOf } from './name.js';
import { injectInto, placeOf } from './wrap.js';

/**
 * Options of `@Leader`: those of `lead`, and which manager.
 *
 * @example
 * ```ts
 * import type { LeaderMethodOptions } from 'holdfast/nest'
 *
 * const options: LeaderMethodOptions = { ttl: 15_000, manager: 'jobs' }
 * ```
 */
export interface LeaderMethodOptions extends Omit<LeadOptions, 'onError' | 'signal'> {
  /**
   * The name of the manager.
   *
   * @default undefined, the manager without a name
   */
  readonly manager?: string | undefined;
  /**
   * Gets each error of the method, after which it campaigns again.
   *
   * @default an error in Nest's log
   */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/**
 * A decorator for asynchronous methods that get a term, or nothing.
 *
 * @example
 * ```ts
 * import { Leader, type LeaderDecorator } from 'holdfast/nest'
 *
 * const scheduler: LeaderDecorator = Leader('scheduler', { ttl: 15_000 })
 * ```
 */
export type LeaderDecorator = <Args extends [] | [term: Term], Result>(
  target: object,
  key: string | symbol,
  method: TypedPropertyDescriptor<(...args: Args) => Promise<Result>>,
) => void;

/**
 * Has Nest call a method while this process leads, as `lead` of the manager does: it campaigns from the start of the application
 * on, in `onApplicationBootstrap`, and resigns in `onModuleDestroy`, which waits for the end of the method. For providers and
 * controllers that exist once: those of other scopes have no such hooks. A class that has these hooks keeps them.
 *
 * The method gets the term, and `currentLock()` is its lock. It should end soon once `term.signal` is aborted. When it throws, the
 * error is logged, and it is called again in the next term.
 *
 * @param name - The name of the election; or a function that returns it, whose `this` is the object.
 * @throws TypeError for a wrong name, when the class is defined; and from the start of the application, for wrong options.
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import type { Term } from 'holdfast'
 * import { Leader } from 'holdfast/nest'
 *
 * @Injectable()
 * class Relay {
 *   @Leader('relay')
 *   async run({ signal, fence }: Term): Promise<void> {
 *     while (!signal.aborted) await settle(fence, signal)
 *   }
 * }
 * ```
 */
export function Leader(
  name: string | (() => string),
  options: LeaderMethodOptions = {},
): LeaderDecorator {
  const { manager, ...rest } = options;
  return (target, key, descriptor) => {
    const where = placeOf('Leader', target, key);
    const named = nameOf(name, where);
    const { method, locksOf } = injectInto(target, descriptor, { where, manager });
    const campaigns = new WeakMap<object, Campaign>();
    hook(target, 'onApplicationBootstrap', async (self, own) => {
      await own();
      const onError = (error: unknown) => log(where, error);
      const campaign = new Campaign((signal) =>
        locksOf(self).lead(named(self, []), { onError, ...rest, signal }, (term) =>
          runAs({ lock: term.lock }, () => method.call(self, term)),
        ),
      );
      campaigns.set(self, campaign);
      await campaign.begun;
    });
    hook(target, 'onModuleDestroy', async (self, own) => {
      await campaigns.get(self)?.end();
      await own();
    });
  };
}

/** One object campaigns. */
class Campaign {
  readonly #stop = new AbortController();
  readonly #leading: Promise<void>;

  constructor(lead: (signal: AbortSignal) => Promise<void>) {
    this.#leading = lead(this.#stop.signal);
    this.#leading.catch(() => {});
  }

  /** Rejects if its options are wrong, which is known at once. */
  get begun(): Promise<void> {
    return Promise.race([this.#leading, undefined]);
  }

  /** Resigns, and waits for the end of the method. */
  async end(): Promise<void> {
    this.#stop.abort();
    await this.#leading.catch(() => {});
  }
}

type Hook = 'onApplicationBootstrap' | 'onModuleDestroy';

/** Has `around` called in place of a lifecycle hook; `own` is that of the class, if it has one. */
function hook(
  target: object,
  name: Hook,
  around: (self: object, own: () => unknown) => Promise<void>,
): void {
  const own = (target as Partial<Record<Hook, () => unknown>>)[name];
  const value = function (this: object): Promise<void> {
    return around(this, () => own?.call(this));
  };
  Object.defineProperty(target, name, { value, configurable: true, writable: true });
}

function log(where: string, error: unknown): void {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  new Logger('holdfast').error(`${where} has failed, and campaigns again: ${text}`);
}
