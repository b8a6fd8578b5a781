/** A manager and the tasks that use it, in a process or in a thread of one. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { ConnectOptions } from 'holdfast';
import { Dice } from '../../support/dice.js';
import { now, type Recorded } from '../../support/history.js';
import {
  type ConnectTarget,
  connect,
  type Lock,
  type LockManager,
} from '../../support/holdfast.js';
import { type Roam, roam } from '../../support/roam.js';
import { Journal } from './journal.js';
import { calmWays, roughWays } from './ways.js';
import { Witness } from './witness.js';

/** The setup of a roamer. */
export interface Setup {
  readonly who: string;
  /** Where the journals are. */
  readonly folder: string;
  readonly ledgerUrl: string;
  readonly target: ConnectTarget;
  readonly options: ConnectOptions;
  readonly plan: Roam;
  readonly seed: number;
  /** Every call is recorded, for `docs/proof.md`. */
  readonly witnessed: boolean;
}

/** How long connecting may fail, in ms: no fault lasts so long. */
const PATIENCE_MS = 60_000;

export class Roamer {
  readonly #dice: Dice;
  readonly #recordedOf = new WeakMap<Lock, Recorded>();
  #calm = false;
  #halted = false;
  #reopening: Promise<void> | undefined;

  private constructor(
    readonly setup: Setup,
    readonly journal: Journal,
    private locks: LockManager,
  ) {
    this.#dice = new Dice(setup.seed);
    this.#listen();
  }

  /** Connects, as soon as a server can be reached. */
  static async open(setup: Setup): Promise<Roamer> {
    const { who, folder, ledgerUrl } = setup;
    const locks = await connectPatiently(setup);
    return new Roamer(setup, new Journal(who, folder, ledgerUrl), locks);
  }

  /** Requests locks at random, until `halt`. */
  async run(): Promise<void> {
    const { plan } = this.setup;
    await Promise.all(Array.from({ length: plan.tasks }, () => this.#task(plan)));
  }

  /** From now on no lock is stolen, and none is held for longer than a moment. */
  calm(): void {
    this.#calm = true;
    this.journal.granted.clear();
  }

  /** Ends `run` after the operations under way. */
  halt(): void {
    this.#halted = true;
  }

  /** Closes the manager in the middle of its operations, and goes on with another. */
  reopen(): Promise<void> {
    this.journal.endAll();
    this.#count(0);
    const closing = this.locks.close();
    this.#reopening = closing.then(async () => {
      this.locks = await connectPatiently(this.setup);
      this.#listen();
    });
    return this.#reopening;
  }

  /** Closes the manager for good. To be called when `run` has ended. */
  async close(): Promise<void> {
    const { held, waiting } = this.locks.stats();
    this.#count(held + waiting);
    await this.locks.close();
    this.journal.close();
  }

  async #task(plan: Roam): Promise<void> {
    const { journal, setup } = this;
    const dice = this.#dice;
    const alone = plan.alone === true;
    const [rough, calm] = [roughWays(journal, alone), calmWays(journal, alone)];
    const remember = (lock: Lock, recorded: Recorded) => void this.#recordedOf.set(lock, recorded);
    while (!this.#halted) {
      const way = dice.oneOf(this.#calm ? calm : rough);
      const pace = this.#calm ? { ...plan, lingering: 0 } : plan;
      const ground = { ...pace, locks: this.locks, dice, recorder: journal };
      const asked = now();
      const outcome = await roam({ ...ground, remember }, way);
      const operation = { who: setup.who, way: way.name, asked, ended: now(), outcome };
      journal.write({ operation });
      if (outcome === 'ERR_LOCK_CLOSED') await this.#reopening;
      // Without a reachable server an operation fails at once.
      if (outcome.startsWith('ERR_')) await sleep(dice.below(50));
    }
  }

  #count(left: number): void {
    const { handedOff } = this.locks.stats();
    this.journal.write({ counts: { who: this.setup.who, handedOff, left } });
  }

  #listen(): void {
    const { who, witnessed } = this.setup;
    if (witnessed) new Witness(who, this.journal).watch(this.locks);
    this.locks.on('lost', (lock) => {
      const recorded = this.#recordedOf.get(lock);
      if (recorded !== undefined) this.journal.lose(recorded);
    });
    // The servers lose their data on purpose.
    this.locks.on('warning', () => {});
  }
}

async function connectPatiently({ who, target, options }: Setup): Promise<LockManager> {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await connect(target, { clientName: who, ...options });
    } catch (error) {
      const { code = '' } = error as { code?: string };
      if (!code.startsWith('ERR_LOCK_') || performance.now() > end) throw error;
      await sleep(100);
    }
  }
}
