/** Records what a process asks of its manager and of its locks, and what it is told, where its callers see it. */

import type { AcquireOptions, LockJson } from 'holdfast';
import { now } from '../../support/history.js';
import type { Lock, LockManager, LockSet } from '../../support/holdfast.js';
import type { Journal } from './journal.js';
import type { Answer, CallRecord } from './record.js';

type Names = string | readonly string[];
type Taken = Lock | LockSet | null;
type Asked = Pick<AcquireOptions, 'mode' | 'limit'>;

/** A call whose answer is awaited. */
type Open = (answer: Answer) => void;

export class Witness {
  /** The names of the live holds, by their locks and fences. */
  readonly #holds = new Map<string, string>();

  constructor(
    readonly who: string,
    readonly journal: Journal,
  ) {}

  /** Records all calls of `locks` from now on. Its methods are replaced: users see the same objects as without a witness. */
  watch(locks: LockManager): void {
    const { acquire, adopt, close, request, tryAcquire } = locks;
    const take =
      (method: (names: Names, options?: AcquireOptions) => Promise<Taken>) =>
      async (names: Names, options?: AcquireOptions) => {
        const opened = this.#asked(names, options);
        const taken = await this.#answered(opened, method.call(locks, names, options));
        this.#granted(opened, taken);
        return taken;
      };
    Object.assign(locks, {
      acquire: take(acquire as Parameters<typeof take>[0]),
      tryAcquire: take(tryAcquire as Parameters<typeof take>[0]),
      request: (names: string, options: AcquireOptions, use: (taken: Taken) => unknown) => {
        const opened = this.#asked(names, options);
        let taken: Taken | undefined;
        const under = (given: Taken) => {
          taken = given;
          this.#granted(opened, given);
          return use(given);
        };
        const ended = request.call(locks, names, options, under as () => unknown);
        // A rejection of the user's work comes behind the grant.
        ended.catch(() => taken === undefined && this.#failed(opened));
        return ended;
      },
      adopt: async (from: LockJson, options: object) => {
        const opened = [this.#open({ lock: from.name, action: 'adopt', from: from.fence })];
        const taken = await this.#answered(opened, adopt.call(locks, from, options));
        this.#granted(opened, taken);
        return taken;
      },
      close: () => {
        for (const [key, hold] of this.#holds) {
          const lock = key.slice(key.indexOf(' ') + 1);
          this.#open({ lock, action: 'release', hold });
        }
        return close.call(locks);
      },
    });
    locks.on('lost', ({ name, fence }) => {
      const hold = this.#holds.get(keyOf(name, fence));
      if (hold !== undefined) this.#open({ lock: name, action: 'lost', hold });
    });
  }

  #asked(names: Names, { mode = 'exclusive', limit }: Asked = {}): Open[] {
    const wanted = limit === undefined ? { mode } : { mode, limit };
    return [names].flat().map((lock) => this.#open({ lock, action: 'acquire', ...wanted }));
  }

  async #answered<T>(opened: readonly Open[], answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      this.#failed(opened);
      throw error;
    }
  }

  #failed(opened: readonly Open[]): void {
    const at = now();
    for (const answer of opened) answer({ return: at, outcome: 'unknown' });
  }

  /** The order of `opened` is that of the locks. */
  #granted(opened: readonly Open[], taken: Taken): void {
    const parts: readonly Lock[] = taken === null ? [] : partsOf(taken);
    for (const [i, answer] of opened.entries()) {
      const lock = parts[i];
      if (lock === undefined) answer({ return: now(), outcome: 'refused' });
      else this.#begin(answer, lock);
    }
  }

  /** Where a lock turns out to have been entered again, the record becomes that of another action. */
  #begin(answer: Open, lock: Lock): void {
    const { name, fence } = lock;
    const key = keyOf(name, fence);
    const entered = lock.constructor.name === 'NestedLock' ? this.#holds.get(key) : undefined;
    const hold = entered ?? this.journal.uniqueId();
    const action = entered === undefined ? {} : { action: 'reenter' };
    this.#holds.set(key, hold);
    answer({ ...promise(lock), ...action, outcome: 'ok', hold, fence } as Answer);
    this.#watchLock(lock, hold, entered === undefined ? 'release' : 'leave');
  }

  #watchLock(lock: Lock, hold: string, giveBack: 'leave' | 'release'): void {
    const { name } = lock;
    const { downgrade, extend, release } = lock;
    // Whoever has exported a lock does not rely on it any more: another may have adopted it.
    let exported = false;
    const calling = (action: CallRecord['action']) => {
      if (!exported) this.#confirm(lock, hold);
      return this.#open({ lock: name, action, hold });
    };
    Object.assign(lock, {
      extend: async (ttl?: number) => {
        const answer = calling('extend');
        await this.#answered([answer], extend.call(lock, ttl));
        answer({ ...promise(lock), outcome: 'ok' });
      },
      downgrade: async () => {
        const wasWhole = lock.mode === 'exclusive';
        const answer = calling('downgrade');
        const shared = await this.#answered([answer], downgrade.call(lock));
        const outcome = !wasWhole ? 'refused' : shared ? 'ok' : 'unknown';
        answer({ return: now(), outcome });
        return shared;
      },
      release: async () => {
        const answer = calling(giveBack);
        if (giveBack === 'release') this.#holds.delete(keyOf(name, lock.fence));
        const freed = await this.#answered([answer], release.call(lock));
        answer({ return: now(), outcome: freed || giveBack === 'leave' ? 'ok' : 'unknown' });
        return freed;
      },
      toJSON: () => {
        this.#confirm(lock, hold);
        exported = true;
        const { fence, mode, token } = lock;
        return { name, mode, token, fence };
      },
    });
  }

  /** Records that the process reads that it holds the lock, if it does. */
  #confirm(lock: Lock, hold: string): void {
    const call = now();
    const { until, ...read } = promise(lock);
    if (until === undefined) return;
    const record = { process: this.who, lock: lock.name, action: 'held', hold } as const;
    this.#write({ ...record, call, ...read, until, outcome: 'ok' });
  }

  #open(record: Omit<CallRecord, 'process' | 'call'>): Open {
    const id = this.journal.uniqueId();
    const begun = { process: this.who, ...record, call: now() };
    this.journal.write({ call: begun, id });
    return (answer) => this.journal.write({ call: { ...begun, ...answer }, id });
  }

  #write(record: CallRecord): void {
    this.journal.write({ call: record, id: this.journal.uniqueId() });
  }
}

/** The locks of a set, which are internal: what is done to the set is done to each of them. */
function partsOf(taken: Lock | LockSet): readonly Lock[] {
  return 'fences' in taken ? (taken as LockSet & { locks: readonly Lock[] }).locks : [taken];
}

function keyOf(name: string, fence: number): string {
  return `${fence} ${name}`;
}

/** Until when the process may rely on the lock. The clock is read first, so the end is never too late. */
function promise(lock: Lock): { readonly return: number; readonly until?: number } {
  const read = now();
  const remaining = lock.remaining;
  return { return: now(), ...(remaining > 0 ? { until: read + remaining * 1_000 } : {}) };
}
