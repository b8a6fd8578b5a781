/**
 * Any place, used by a caller with as few references as possible: at random steps only the signals of the locks are
 * referred to, garbage is collected, and the manager and the locks must still exist.
 */

import assert from 'node:assert/strict';
import { Dice } from '../../support/dice.js';
import type { Lock, LockManager } from '../../support/holdfast.js';
import type { Host, Where } from './place.js';

/** With fewer ms than this left, a lock may end before the check. */
const AMPLE_MS = 500;
const CHANCE = 0.4;
/** The references to a manager with many operations are not dropped more often. */
const PROBES_MAX = 12;

/** The host `host`, with references to managers and locks that are dropped at random. */
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

/** An object whose reference can be dropped, and restored as long as something else refers to it. */
class Loose<T extends object> {
  readonly #weak: WeakRef<T>;
  /** The target of the reference. */
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
  /** Whether the reference is dropped just now. */
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
    // The check takes time: a caller that reads several outcomes in turn may handle a rejection too late.
    during.catch(() => {});
    return during;
  }

  /** The argument of a callback is behind a stand-in, too. */
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

  /** Drops the references to all objects that must live by themselves, and checks that they do. */
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
      // The manager drops its reference to a lock that is lost meanwhile, too.
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
