/** Looks at all locks while pages are open, and for an hour after, and tells them what has changed. */

import { type LockView, listLocks } from '../views/lock-views.js';
import { Observer } from '../views/observer.js';
import { listVotes, majorityOf } from '../views/votes.js';
import { type Happening, History, KEPT_MS } from './history.js';
import type { UiSettings } from './options.js';
import { differs, endsOf, happeningOf, type Row, rowOf } from './rows.js';
import type { Stream } from './stream.js';

/** The most pages that may be open: all locks may be on their way to a slow reader of each. */
const STREAMS_MAX = 100;
/** So many happenings of one look are told: more of them nobody reads. */
const HAPPENINGS_MAX = 200;
/** The pause after a look is at least so many times as long as the look. */
const PAUSES_PER_LOOK = 4;
/** How much longer the pause is while no page is open: its looks are for the history of the next page. */
const UNSEEN = 5;

/** The source of all streams of one page. @internal */
export class Feed {
  readonly #settings: Omit<UiSettings, 'allowRelease'>;
  readonly #observer = new Observer();
  readonly #history = new History();
  readonly #streams = new Set<Stream>();
  #rows = new Map<string, Row>();
  /** When the last look succeeded, if changes since then were missed. */
  #missedSince: number | undefined;
  #lastLook = 0;
  /** Why the last look failed. */
  #failure: string | null = null;
  #looked = false;
  #looking = false;
  /** When the last page was closed, by the clock of `performance`. */
  #left = 0;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(settings: Omit<UiSettings, 'allowRelease'>) {
    this.#settings = settings;
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
    // The locks that were seen when the last page closed are old.
    this.#looked = false;
    this.lookNow();
  }

  remove(stream: Stream): void {
    this.#streams.delete(stream);
    if (this.#streams.size > 0) return;
    this.#left = performance.now();
    this.#lookLater(0);
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
      const views = await this.#views();
      const now = Date.now();
      this.#watched(now);
      const happened = this.#observer.look(views, now).map((each) => happeningOf(each, now));
      const rows = views.map((view) => rowOf(view, this.#observer, now, this.#rows.get(view.name)));
      this.#tell(rows, happened, now);
    } catch (error) {
      this.#miss();
      this.#failure = (error as Error).message;
      this.#send('failure', JSON.stringify({ now: Date.now(), message: this.#failure }));
    }
    this.#looking = false;
    this.#lookLater(performance.now() - began);
  }

  /** Plans the next look after one that `took` so many ms. */
  #lookLater(took: number): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    const pause = Math.max(this.#settings.interval, took * PAUSES_PER_LOOK);
    if (this.#streams.size > 0) {
      this.#timer = setTimeout(() => this.lookNow(), pause);
    } else if (performance.now() - this.#left < KEPT_MS) {
      // The process may end.
      this.#timer = setTimeout(() => this.lookNow(), pause * UNSEEN).unref();
    } else {
      // Changes before the next page is opened are not observed.
      this.#miss();
    }
  }

  #views(): Promise<LockView[]> {
    const { locks, servers } = this.#settings;
    return servers.length === 0 ? listLocks(locks, '*') : listVotes(servers);
  }

  #miss(): void {
    this.#observer.missed();
    // Before the first look the history has no time to keep a gap of.
    this.#missedSince ??= this.#lastLook;
  }

  /** Takes note that a look has succeeded, and what nobody watched before it. */
  #watched(now: number): void {
    if (this.#missedSince !== undefined) {
      this.#history.addGap({ from: this.#missedSince, to: now });
      this.#missedSince = undefined;
    }
    if (this.#lastLook === 0) this.#history.since = now;
    this.#lastLook = now;
  }

  /** Sends what is new: whole rows, or only the ends of leases that were renewed. */
  #tell(rows: readonly Row[], happened: readonly Happening[], now: number): void {
    const before = this.#rows;
    const first = !this.#looked || this.#failure !== null;
    this.#looked = true;
    this.#rows = new Map(rows.map((row) => [row.name, row]));
    this.#history.add(happened, now);
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
      happened: this.#history.all(),
      gaps: this.#history.gaps,
      since: this.#history.since,
      quorum: this.#quorum(),
      failure: this.#failure,
    });
  }

  /** How many servers the quorum has, and how many are a majority; `null` if it is none. */
  #quorum(): { readonly of: number; readonly needed: number } | null {
    const { length } = this.#settings.servers;
    return length === 0 ? null : { of: length, needed: majorityOf(length) };
  }

  #send(event: string, json: string): void {
    for (const stream of this.#streams) stream.send(event, json);
  }
}
