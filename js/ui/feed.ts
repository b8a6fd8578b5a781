/** Looks at all locks as long as pages are open, and tells them what has changed. */

import type { LockManager } from '../manager/manager.js';
import { listLocks } from '../operators/lock-views.js';
import { Observer } from '../operators/observer.js';
import { differs, endsOf, type Happening, happeningOf, type Row, rowOf } from './rows.js';
import type { Stream } from './stream.js';

/** The most pages that may be open: all locks may be on their way to a slow reader of each. */
const STREAMS_MAX = 100;
/** The page shows so many happenings. */
const HAPPENINGS_MAX = 200;
/** The pause after a look is at least so many times as long as the look. */
const PAUSES_PER_LOOK = 4;

/** The source of all streams of one page. @internal */
export class Feed {
  readonly #locks: LockManager;
  readonly #interval: number;
  readonly #observer = new Observer();
  readonly #streams = new Set<Stream>();
  #rows = new Map<string, Row>();
  #happenings: Happening[] = [];
  /** Why the last look failed. */
  #failure: string | null = null;
  #looked = false;
  #looking = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(locks: LockManager, interval: number) {
    this.#locks = locks;
    this.#interval = interval;
  }

  /** Whether no further page may be opened. */
  get isFull(): boolean {
    return this.#streams.size >= STREAMS_MAX;
  }

  /** Tells `stream` everything, now and from now on. */
  add(stream: Stream): void {
    if (this.#closed) {
      stream.close();
      return;
    }
    this.#streams.add(stream);
    if (this.#streams.size > 1) {
      if (this.#looked) this.catchUp(stream);
      return;
    }
    // What was seen when the last page closed is old.
    this.#looked = false;
    this.lookNow();
  }

  remove(stream: Stream): void {
    this.#streams.delete(stream);
    if (this.#streams.size > 0) return;
    clearTimeout(this.#timer);
    // Changes before the next page is opened are not observed.
    this.#observer.missed();
  }

  /** Tells one stream everything. */
  catchUp(stream: Stream): void {
    stream.send('state', this.#state());
  }

  /** Looks at once, unless a look is under way. */
  lookNow(): void {
    clearTimeout(this.#timer);
    if (!this.#looking) void this.#look();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const stream of this.#streams) stream.close();
  }

  async #look(): Promise<void> {
    this.#looking = true;
    const began = performance.now();
    try {
      const views = await listLocks(this.#locks, '*');
      const now = Date.now();
      const happened = this.#observer.look(views, now).map((each) => happeningOf(each, now));
      const rows = views.map((view) => rowOf(view, this.#observer, now, this.#rows.get(view.name)));
      this.#tell(rows, happened, now);
    } catch (error) {
      this.#observer.missed();
      this.#failure = (error as Error).message;
      this.#send('failure', JSON.stringify({ now: Date.now(), message: this.#failure }));
    }
    this.#looking = false;
    if (this.#closed || this.#streams.size === 0) return;
    const took = performance.now() - began;
    const pause = Math.max(this.#interval, took * PAUSES_PER_LOOK);
    this.#timer = setTimeout(() => this.lookNow(), pause);
  }

  /** Sends what is new: whole rows, or only the ends of leases that were renewed. */
  #tell(rows: readonly Row[], happened: readonly Happening[], now: number): void {
    const before = this.#rows;
    const first = !this.#looked || this.#failure !== null;
    this.#looked = true;
    this.#rows = new Map(rows.map((row) => [row.name, row]));
    this.#happenings = [...this.#happenings, ...happened].slice(-HAPPENINGS_MAX);
    this.#failure = null;
    if (first) {
      this.#send('state', this.#state());
      return;
    }
    const changed: Row[] = [];
    const leases: [string, (number | null)[]][] = [];
    for (const row of rows) {
      const old = before.get(row.name);
      if (old === undefined || differs(row, old)) changed.push(row);
      else if (endsOf(row).join() !== endsOf(old).join()) leases.push([row.name, endsOf(row)]);
    }
    const gone = [...before.keys()].filter((name) => !this.#rows.has(name));
    const recent = happened.slice(-HAPPENINGS_MAX);
    this.#send('change', JSON.stringify({ now, rows: changed, gone, leases, happened: recent }));
  }

  #state(): string {
    return JSON.stringify({
      now: Date.now(),
      rows: [...this.#rows.values()],
      happened: this.#happenings,
      failure: this.#failure,
    });
  }

  #send(event: string, json: string): void {
    for (const stream of this.#streams) stream.send(event, json);
  }
}
