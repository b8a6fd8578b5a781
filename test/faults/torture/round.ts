/** A round of the campaign: processes in one place, faults, peace, and the judgement. */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Contender } from '../../support/crew.js';
import { Dice } from '../../support/dice.js';
import { removeFolder } from '../../support/folders.js';
import { now } from '../../support/history.js';
import type { ConnectTarget } from '../../support/holdfast.js';
import type { Rift } from '../../support/kinds.js';
import { Ledger } from '../../support/ledger.js';
import { sleep, until } from '../../support/wait.js';
import type { ClientOrders } from './client.js';
import { clientFaults, type Post } from './client-faults.js';
import { type History, type Operation, readHistory } from './journal.js';
import { judge, judgeStores, RECOVERY_US, type StoresVerdict, type Verdict } from './judge.js';
import { LEASE_MS, leftovers, type Place } from './places/place.js';
import { PLACES } from './places.js';
import { type CallRecord, publish } from './record.js';
import type { Setup } from './roamer.js';
import type { Scene } from './server-faults.js';

/** The plan of a round. */
export interface RoundPlan {
  /** A key of `PLACES`. */
  readonly where: string;
  readonly seed: number;
  /** How long faults occur. */
  readonly seconds: number;
  /** The stores do not look at fences. */
  readonly unfenced: boolean;
  /** The folder that gets the history of the round, for others to judge. */
  readonly history?: string;
}

/** A fault, with times of the clock of the history. */
interface Occurrence {
  readonly kind: string;
  readonly from: number;
  readonly to: number;
}

/** The result of a round. */
export interface RoundResult {
  readonly plan: RoundPlan;
  readonly faults: readonly Occurrence[];
  readonly operations: readonly Operation[];
  /** Holds by kind. */
  readonly holds: Readonly<Record<string, number>>;
  /** The locks that went from caller to caller without the server, in processes that closed in order. */
  readonly handedOff: number;
  readonly verdict: Verdict;
  readonly stores: StoresVerdict;
  /** The violations, in words. */
  readonly problems: readonly string[];
  /** Faults that did not affect the servers as planned: no promise of holdfast's. */
  readonly mishaps: readonly string[];
  /** Where the journals are, if something went wrong. */
  readonly folder: string;
  /** The keys that were left at last; the servers may take most of a minute to forget dead processes. */
  readonly left: Promise<readonly string[]>;
}

/** A history, and the threads that were terminated, with the times. */
interface Written extends History {
  readonly ended: History['deaths'];
}

const PROCESSES = 3;
const TASKS = 8;
/** The longest pause between faults, in ms: few faults at a time are easier to understand. */
const PAUSES_MS = [700, 1_500, 4_000];
/** Long enough for the recovery of all processes and some rounds after it. */
const CALM_MS = RECOVERY_US / 1_000 + 4_000;
/** How long the end of everything may take, in ms. */
const PATIENCE_MS = 40_000;

/** Plays a round, in the place that `plan` names or another. */
export async function playRound(
  plan: RoundPlan,
  open = PLACES[plan.where] as () => Promise<Place>,
): Promise<RoundResult> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-torture-'));
  const [place, ledger] = await Promise.all([open(), Ledger.start()]);
  const round = new Round(plan, place, ledger, folder);
  let settled: Promise<readonly string[]> | undefined;
  try {
    const result = await round.play();
    // Awaited when other rounds are over.
    settled = leftovers(place).catch((error) => [String(error)]);
    return { ...result, left: settled.finally(() => place.stop()) };
  } finally {
    await round.end();
    await ledger.stop();
    if (settled === undefined) await place.stop();
  }
}

class Round {
  readonly #dice: Dice;
  readonly #posts: Post[] = [];
  readonly #faults: Occurrence[] = [];
  readonly #rifts: Rift[] = [];
  readonly #deaths = new Map<string, number>();
  readonly #problems: string[] = [];
  readonly #mishaps: string[] = [];
  /** The settings of this round. */
  readonly #leaseMs: number;
  readonly #lingering: number;
  readonly #commandTimeout: number;
  #count = 0;

  constructor(
    readonly plan: RoundPlan,
    readonly place: Place,
    readonly ledger: Ledger,
    readonly folder: string,
  ) {
    const dice = new Dice(plan.seed);
    this.#dice = dice;
    // Servers of a quorum take a tenth of a lease to answer, and a busy machine needs that.
    this.#leaseMs = place.quorum ? LEASE_MS : dice.oneOf([300, 800, LEASE_MS]);
    this.#lingering = dice.oneOf([0, 0.01, 0.05]);
    this.#commandTimeout = dice.oneOf([300, 2_000]);
  }

  async play(): Promise<Omit<RoundResult, 'left'>> {
    const posts = Array.from({ length: PROCESSES }, () => this.#man());
    this.#posts.push(...(await Promise.all(posts)));
    const until = now() + this.plan.seconds * 1_000_000;
    await this.#attempt(this.#tortureServers(until), this.#tortureClients(until));
    const healed = now();
    await this.#attempt(this.#peace());
    const ended = now();
    await this.#attempt(...this.#posts.map((post) => this.#halt(post)));
    return this.#judge(healed, ended);
  }

  /** Ends all live processes. */
  async end(): Promise<void> {
    await Promise.all(this.#posts.map(({ contender }) => contender.kill()));
  }

  /** A failure is a problem of the round, such as a process that ended by itself. */
  async #attempt(...parts: readonly Promise<void>[]): Promise<void> {
    for (const part of await Promise.allSettled(parts)) {
      if (part.status === 'rejected') this.#problems.push(String(part.reason));
    }
  }

  /** Server faults one at a time: the promises hold for one. */
  async #tortureServers(end: number): Promise<void> {
    const dice = new Dice(this.plan.seed + 1);
    const faults = someOf(this.place.faults, dice);
    const pauseMs = dice.oneOf(PAUSES_MS);
    const rift: Scene['rift'] = async (during, { lastsMs = 0, ...more } = {}) => {
      const from = now();
      try {
        await during();
      } finally {
        this.#rifts.push({ from, to: now() + lastsMs * 1_000, ...more });
      }
    };
    while (now() < end) {
      await sleep(dice.below(pauseMs));
      const fault = dice.oneOf(faults);
      try {
        await this.#note(fault.kind, () => fault.cause({ dice, rift }));
      } catch (error) {
        // Servers that have not recovered do not get another fault.
        this.#mishaps.push(`${fault.kind}: ${error}`);
        return;
      }
    }
  }

  /** Processes suffer at any time, one after the other or together. */
  async #tortureClients(end: number): Promise<void> {
    const dice = new Dice(this.plan.seed + 2);
    const all = clientFaults({
      dice,
      leaseMs: this.#leaseMs,
      died: (who) => void this.#deaths.set(who, now()),
      replace: async (post) => {
        const { contender } = await this.#man();
        post.contender = contender;
      },
    });
    const faults = someOf(all, dice);
    const pauseMs = dice.oneOf(PAUSES_MS);
    const suffering: Promise<void>[] = [];
    while (now() < end) {
      await sleep(dice.below(pauseMs));
      const post = dice.oneOf(this.#posts);
      const fault = dice.oneOf(faults);
      if (post.suffers) continue;
      post.suffers = true;
      const over = this.#attempt(this.#note(fault.kind, () => fault.cause(post)));
      suffering.push(
        over.finally(() => {
          post.suffers = false;
        }),
      );
    }
    await Promise.all(suffering);
  }

  async #note(kind: string, cause: () => Promise<unknown>): Promise<void> {
    const from = now();
    await cause();
    this.#faults.push({ kind, from, to: now() });
  }

  async #man(): Promise<Post> {
    this.#count += 1;
    const who = `p${this.#count}`;
    const { place, plan, ledger, folder } = this;
    const program = join(__dirname, 'client.js');
    const contender = new Contender<ClientOrders>(who, program);
    const setup: Setup = {
      who,
      folder,
      ledgerUrl: ledger.url,
      target: place.targets[this.#count % place.targets.length] as ConnectTarget,
      options: { commandTimeout: this.#commandTimeout, ...place.options },
      seed: this.#dice.below(2 ** 31),
      witnessed: plan.history !== undefined,
      plan: {
        names: place.names,
        tasks: TASKS,
        ttl: this.#leaseMs,
        wait: 20_000,
        lingering: this.#lingering,
        alone: place.quorum,
        unfenced: plan.unfenced,
      },
    };
    await contender.order('open', setup);
    return { contender, suffers: false };
  }

  /** After the faults every lock is granted again, and again. */
  async #peace(): Promise<void> {
    const crew = this.#posts.map(({ contender }) => contender);
    await Promise.all(crew.map((each) => each.order('calm')));
    await sleep(CALM_MS);
    let missing = this.place.names;
    const all = async () => {
      const granted = await Promise.all(crew.map((each) => each.order('granted')));
      missing = this.place.names.filter((name) => !granted.flat().includes(name));
      return missing.length === 0;
    };
    await until(all, 'peace').catch(() => {
      throw new Error(`never granted after all faults: ${missing}`);
    });
  }

  /** One process ends what it does, closes, and exits by itself. */
  async #halt({ contender }: Post): Promise<void> {
    const { who } = contender;
    const open = await within(contender.order('halt'), `${who} has promises that do not settle`);
    if (open > 0) throw new Error(`a thread of ${who} left ${open} operations open`);
    await within(contender.stop(), `${who} does not exit by itself`);
  }

  async #judge(healed: number, ended: number): Promise<Omit<RoundResult, 'left'>> {
    const { folder, plan, place } = this;
    const mishaps = this.#mishaps;
    const written = readHistory(folder);
    const rifts = [...written.rifts, ...this.#rifts];
    const history = { ...written, rifts, deaths: new Map([...written.deaths, ...this.#deaths]) };
    if (plan.history !== undefined) {
      this.#publish(plan.history, { ...history, ended: written.deaths });
    }
    const managers = place.quorum ? 0 : 2 * PROCESSES;
    const facts = { healed, ended, lease: this.#leaseMs * 1_000, names: place.names, managers };
    const verdict = judge(history, facts);
    const stores = await judgeStores(this.ledger);
    const problems = [...this.#problems, ...verdict.problems];
    if (!plan.unfenced) problems.push(...stores.problems);
    if (problems.length === 0) removeFolder(folder);
    const faults = this.#faults.sort((a, b) => a.from - b.from);
    const holds: Record<string, number> = {};
    for (const { request, downgraded } of history.holds) {
      const kind = request?.limit ? 'semaphore' : request?.shared ? 'shared' : 'exclusive';
      for (const each of downgraded === undefined ? [kind] : [kind, 'downgraded']) {
        holds[each] = (holds[each] ?? 0) + 1;
      }
    }
    const { operations } = history;
    const handedOff = history.counts.reduce((sum, counts) => sum + counts.handedOff, 0);
    const found = { verdict, stores, problems, mishaps };
    return { plan, faults, operations, holds, handedOff, ...found, folder };
  }

  #publish(folder: string, { calls, rifts, ended }: Written): void {
    const { where, seed } = this.plan;
    // With two masters at a time a lock is two objects, and `docs/safety.md` says what each promises.
    if (rifts.some(({ fork }) => fork !== undefined)) return;
    const kinds = [...new Set(this.#faults.map(({ kind }) => kind))].sort();
    const title = `${where}, seed ${seed}: ${PROCESSES} processes under ${kinds.join(', ')}`;
    const faults = rifts.map(({ lock, from, to }): CallRecord => {
      const of = lock === undefined ? {} : { lock };
      return { process: 'fault', ...of, action: 'forget', call: from, return: to };
    });
    publish(folder, `${where}-${seed}`, title, [...calls, ...givenBack(calls, ended), ...faults]);
  }
}

/** The end of a thread gives back what it has, and tells nobody; a process that is killed keeps it until its leases end. */
function givenBack(calls: readonly CallRecord[], ended: History['deaths']): CallRecord[] {
  const released = new Set(calls.filter(isRelease).map(({ hold }) => hold));
  return calls.flatMap(({ process, lock, hold }) => {
    const call = ended.get(process);
    if (call === undefined || hold === undefined || released.has(hold)) return [];
    released.add(hold);
    return [{ process, lock: lock as string, action: 'release', call, hold }];
  });
}

function isRelease({ action }: CallRecord): boolean {
  return action === 'release';
}

/** At least half of the faults: with all of them at once much stays hidden. */
function someOf<T>(all: readonly T[], dice: Dice): readonly T[] {
  const count = Math.ceil(all.length / 2) + dice.below(all.length / 2 + 1);
  return dice.shuffled(all).slice(0, count);
}

async function within<T>(promise: Promise<T>, problem: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(problem)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
