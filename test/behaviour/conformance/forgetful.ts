/**
 * Any place, used by somebody who refers to as little as possible: at random steps only the signals of the locks are
 * kept, garbage is collected, and the manager and the locks must still be there.
 */

import assert from 'node:assert/strict';
import { Dice } from '../../support/dice.js';
import type { Lock, LockManager } from '../../support/holdfast.js';
import type { Host, Where } from './place.js';

/** With fewer ms than this left, a lock may be over before it is looked for. */
const AMPLE_MS = 500;
const CHANCE = 0.4;
/** A manager that does very much at once is let go of no more often. */
const PROBES_MAX = 12;

/** The host `host`, whose managers and locks are let go of at random. */
export class Forgetful implements Host {
  readonly name: string;
  readonly #host: Host;
  readonly #dice: Dice;

  constructor(host: Host, seed: number) {
    this.name = `${host.name}, forgetful with the seed ${seed}`;
    this.#host = host;
    this.#dice = new Dice(seed);
  }

  promises = (title: string) => this.#host.promises?.(title) ?? true;
  start = () => this.#host.start();
  next = (): Where => this.#host.next();
  quiet = async () => this.#host.quiet?.();
  stop = () => this.#host.stop();
  wrap = (manager: LockManager) => new Circle(manager, this.#dice).manager;
}

/** An object that can be let go of, and found again as long as something else refers to it. */
class Loose<T extends object> {
  readonly #weak: WeakRef<T>;
  /** What it refers to. */
  kept: T | AbortSignal | undefined;

  constructor(real: T) {
    this.#weak = new WeakRef(real);
    this.kept = real;
  }

  find(): T {
    const real = this.#weak.deref();
    assert.ok(real !== undefined, 'what is held, waits or listens was collected');
    this.kept = real;
    return real;
  }

  /** Refers to `instead`, if anything, until it is found again. */
  letGo(instead?: AbortSignal): void {
    this.kept = instead;
  }
}

const standIns = new WeakSet<object>();

/** A manager, and the locks that it gave, behind stand-ins which find them at each use. */
class Circle {
  readonly manager: LockManager;
  readonly #dice: Dice;
  readonly #loose: Loose<LockManager>;
  readonly #locks = new Set<Loose<Lock>>();
  readonly #heard = new WeakSet<AbortSignal>();
  /** Operations under way. */
  #pending = 0;
  /** Whether it is let go of just now. */
  #gone = false;
  #probes = 0;
  #closed = false;

  constructor(manager: LockManager, dice: Dice) {
    this.#dice = dice;
    this.#loose = new Loose(manager);
    this.manager = this.#standIn(this.#loose);
  }

  #standIn<T extends object>(loose: Loose<T>): T {
    const standIn: T = new Proxy({} as T, {
      get: (_, property) => {
        const real = loose.find();
        const value = Reflect.get(real, property, real);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => this.#call(loose, standIn, property, args);
      },
      // Comparing or printing the signal shows the real one.
      getPrototypeOf: () => Reflect.getPrototypeOf(loose.find()),
      has: (_, property) => Reflect.has(loose.find(), property),
      ownKeys: () => Reflect.ownKeys(loose.find()),
      getOwnPropertyDescriptor: (_, property) =>
        Reflect.getOwnPropertyDescriptor(loose.find(), property),
    });
    standIns.add(standIn);
    return standIn;
  }

  #call<T extends object>(
    loose: Loose<T>,
    standIn: T,
    property: string | symbol,
    args: unknown[],
  ): unknown {
    const real = loose.find() as T & Record<string | symbol, (...args: unknown[]) => unknown>;
    const isManager = (real as object) === this.#loose.find();
    if (isManager && (property === 'close' || property === Symbol.asyncDispose)) {
      this.#closed = true;
    }
    const given = property === 'request' ? args.map((each) => this.#callback(each)) : args;
    const result = real[property]?.(...given);
    if (result === real) return standIn;
    if (!(result instanceof Promise)) return result;
    const during = this.#during(result);
    // It takes longer than without: who looks at several outcomes in turn may come too late for a failure.
    during.catch(() => {});
    return during;
  }

  /** What a callback gets is behind a stand-in, too. */
  #callback(argument: unknown): unknown {
    if (typeof argument !== 'function') return argument;
    return (taken: unknown) => argument(this.#behind(taken));
  }

  #behind(value: unknown): unknown {
    if (typeof value !== 'object' || value === null || standIns.has(value)) return value;
    if (!('release' in value)) return value;
    const loose = new Loose(value as Lock);
    if (value.constructor.name === 'HeldLock') this.#locks.add(loose);
    return this.#standIn(loose);
  }

  async #during(outcome: Promise<unknown>): Promise<unknown> {
    this.#pending += 1;
    const end = () => {
      this.#pending -= 1;
      this.#findAll();
    };
    outcome.then(end, end);
    await this.#probe();
    const value = this.#behind(await outcome);
    await this.#probe();
    return value;
  }

  /** Lets go of all that must live by itself, and looks whether it does. */
  async #probe(): Promise<void> {
    if (this.#closed || this.#gone || this.#probes >= PROBES_MAX) return;
    if (!this.#dice.chance(CHANCE) || !this.#letGo()) return;
    this.#probes += 1;
    await new Promise(setImmediate);
    assert.ok(globalThis.gc !== undefined, 'run with --expose-gc');
    globalThis.gc();
    await new Promise(setImmediate);
    this.#findAll();
  }

  #letGo(): boolean {
    const manager = this.#loose.find();
    const locks = [...this.#locks].filter((loose) => {
      const { held, remaining } = loose.find();
      if (!held) this.#locks.delete(loose);
      return held && remaining > AMPLE_MS;
    });
    const needed = this.#pending > 0 || manager.eventNames().length > 0 || locks.length > 0;
    if (!needed) return false;
    for (const loose of locks) {
      const { signal } = loose.find();
      // Of a lock that is lost meanwhile the manager lets go, too.
      if (!this.#heard.has(signal)) signal.addEventListener('abort', this.#findAll, { once: true });
      this.#heard.add(signal);
      loose.letGo(signal);
    }
    this.#loose.letGo();
    this.#gone = true;
    return true;
  }

  readonly #findAll = (): void => {
    if (!this.#gone) return;
    this.#gone = false;
    this.#loose.find();
    for (const loose of this.#locks) loose.find();
  };
}
