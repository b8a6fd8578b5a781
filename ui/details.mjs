// One lock: its holders, its wait queue, and its release behind a question.

import { element, leaseOf, modeOf, nameOf, sinceOf } from './format.mjs';
import { human, printable } from './people.mjs';

/** So many waiters are listed. */
const WAITERS_MAX = 200;

const at = (selector) => document.querySelector(selector);

export class Details {
  #name = null;
  #lockOf;
  #now;
  #asked = null;
  /** Whether this page may release locks. */
  release = false;

  /** `lockOf` finds a lock by its name; `now` tells the time of the server. */
  constructor(lockOf, now) {
    this.#lockOf = lockOf;
    this.#now = now;
    at('#close').addEventListener('click', () => at('#details').close());
    at('#details').addEventListener('close', () => {
      this.#name = null;
    });
    at('#release').addEventListener('click', () => this.#ask());
    at('#confirm-no').addEventListener('click', () => at('#confirm').close());
    at('#confirm-yes').addEventListener('click', () => void this.#release());
  }

  open(name) {
    this.#name = name;
    at('#details-note').textContent = '';
    this.draw();
    if (!at('#details').open) at('#details').showModal();
    at('#close').focus();
  }

  /** Brings the dialog up to date, if it is open. */
  draw() {
    if (this.#name === null) return;
    const now = this.#now();
    const lock = this.#lockOf(this.#name);
    const holders = lock?.holders ?? [];
    const waiters = lock?.waiters ?? [];
    at('#details-title').textContent = `Lock “${printable(this.#name)}”`;
    at('#details-summary').textContent = summary(lock);
    fill('#holders', holders, (each) => [
      printable(nameOf(each)),
      each.client,
      each.fence === null ? 'known to its holder alone' : String(each.fence),
      sinceOf(each, now),
      leaseOf(each, now),
    ]);
    fill('#waiters', waiters.slice(0, WAITERS_MAX), (each, i) => [
      String(i + 1),
      printable(nameOf(each)),
      each.client,
      each.mode,
      human(now - each.since),
    ]);
    at('#release').hidden = !this.release || holders.length === 0;
  }

  #ask() {
    const lock = this.#lockOf(this.#name);
    if (lock === undefined) return;
    this.#asked = { name: lock.name, owners: lock.owners };
    const who = lock.holders.map((each) => printable(nameOf(each))).join(', ');
    const next = lock.waiters.length === 0 ? '' : ' The next waiter gets it at once.';
    at('#confirm-title').textContent = `Take “${printable(lock.name)}” away from ${who}?`;
    at('#confirm-text').textContent =
      `${who} is notified, and what it does until it has stopped is no longer protected: stop it first, if you can.${next}`;
    at('#confirm').showModal();
    at('#confirm-no').focus();
  }

  async #release() {
    at('#confirm').close();
    const note = at('#details-note');
    note.textContent = 'Releasing…';
    const header = encodeURIComponent(JSON.stringify(this.#asked));
    try {
      const answer = await fetch('release', {
        method: 'POST',
        headers: { 'holdfast-release': header },
      });
      const said = await answer.json();
      note.textContent = answer.ok ? 'Released.' : `Not released: ${said.detail}.`;
    } catch (error) {
      note.textContent = `Not released: ${error.message}.`;
    }
  }
}

function summary(lock) {
  if (lock === undefined || lock.mode === null) return 'It is held by nobody.';
  const { waiters, changes } = lock;
  const queue = waiters.length === 0 ? 'Nobody waits.' : `${waiters.length} waiting.`;
  return `It is held, ${modeOf(lock)}. ${queue} New owners seen: ${changes}.`;
}

function fill(selector, items, cellsOf) {
  const rows = items.map((item, i) => {
    const row = document.createElement('tr');
    row.append(...cellsOf(item, i).map((text) => element('td', text)));
    return row;
  });
  const none = document.createElement('tr');
  const cell = element('td', 'none', 'quiet');
  cell.colSpan = 5;
  none.append(cell);
  at(`${selector} tbody`).replaceChildren(...(rows.length === 0 ? [none] : rows));
}
