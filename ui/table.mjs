// The table of locks: searched and sorted whole, but only the rows that can be seen are in the document.

import { element, heldOf, leaseOf, modeOf, nameOf } from './format.mjs';
import { human, printable } from './people.mjs';

/** The height of a row, as in style.css. */
const ROW_PX = 34;
/** Rows above and below the visible ones. */
const BESIDES = 8;
/** A lease that ends sooner is shown as a warning, in ms. */
const SOON_MS = 2_000;

const oldest = (times) => times.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);

/** What each column is sorted by. A first click shows the greatest first, except for text. */
const KEYS = {
  name: ({ name }) => name,
  mode: modeOf,
  holder: ({ holders }) => holders.map(nameOf).join(),
  fence: ({ holders }) => holders[0]?.fence ?? 0,
  held: ({ holders }, now) => now - oldest(holders.map(({ since }) => since)),
  lease: ({ holders }, now) => oldest(holders.map(({ ends }) => ends ?? Infinity)) - now,
  waiting: ({ waiters }) => waiters.length,
  longest: ({ waiters }, now) => now - oldest(waiters.map(({ since }) => since)),
  changes: ({ changes }) => changes,
};
/** The columns whose least value comes first at the first click. */
const RISING = ['name', 'mode', 'holder', 'lease'];

export class Table {
  #rows = document.querySelector('#rows');
  #scroll = document.querySelector('#scroll');
  #table = document.querySelector('#table');
  #above = spacer();
  #below = spacer();
  /** The rows in the document, by the lock's name. */
  #shown = new Map();
  #list = [];
  #sort = { by: 'name', rising: true };
  /** The lock that the arrow keys are at. */
  #current = '';
  #open;
  #now;

  /** `open` is called with the name of a lock that a person opens; `now` tells the time of the server. */
  constructor(open, now) {
    this.#open = open;
    this.#now = now;
    this.#rows.append(this.#above, this.#below);
    this.#scroll.addEventListener('scroll', () => this.draw());
    this.#rows.addEventListener('click', (event) => this.#onClick(event));
    this.#rows.addEventListener('keydown', (event) => this.#onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.#scroll);
  }

  /** Sorts by a column, or the other way round if it is sorted by it already. */
  sortBy(by) {
    const rising = this.#sort.by === by ? !this.#sort.rising : RISING.includes(by);
    this.#sort = { by, rising };
    for (const button of document.querySelectorAll('[data-sort]')) {
      const own = button.dataset.sort === by;
      const head = button.closest('th');
      if (own) head.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
      else head.removeAttribute('aria-sort');
    }
  }

  /** Shows those of all locks that match. Returns how many there are. */
  show(locks, matches) {
    const now = this.#now();
    const key = KEYS[this.#sort.by];
    const sign = this.#sort.rising ? 1 : -1;
    const found = [];
    for (const lock of locks) if (matches(lock)) found.push([key(lock, now), lock]);
    found.sort(([a, one], [b, other]) => sign * compare(a, b) || compare(one.name, other.name));
    this.#list = found.map(([, lock]) => lock);
    this.#table.setAttribute('aria-rowcount', String(this.#list.length + 1));
    this.draw();
    return this.#list.length;
  }

  /** Brings the visible rows up to date. */
  draw() {
    const count = this.#list.length;
    const height = this.#scroll.clientHeight;
    const top = Math.max(0, this.#scroll.scrollTop - ROW_PX);
    const first = Math.max(0, Math.min(Math.floor(top / ROW_PX) - BESIDES, count - 1));
    const end = Math.min(count, Math.ceil((top + height) / ROW_PX) + BESIDES);
    const visible = this.#list.slice(first, end);
    const focused = document.activeElement?.dataset?.name;
    this.#replace(visible, first);
    this.#above.firstChild.style.height = `${first * ROW_PX}px`;
    this.#below.firstChild.style.height = `${Math.max(0, count - end) * ROW_PX}px`;
    // A row that moved has lost the focus.
    const again = focused === undefined ? undefined : this.#shown.get(focused);
    if (again !== undefined && document.activeElement !== again)
      again.focus({ preventScroll: true });
  }

  #replace(visible, first) {
    const names = new Set(visible.map(({ name }) => name));
    for (const [name, row] of this.#shown) {
      if (names.has(name)) continue;
      row.remove();
      this.#shown.delete(name);
    }
    if (!names.has(this.#current)) this.#current = visible[0]?.name ?? '';
    const now = this.#now();
    let before = this.#above.nextSibling;
    visible.forEach((lock, i) => {
      const row = this.#shown.get(lock.name) ?? rowFor(lock.name);
      this.#shown.set(lock.name, row);
      row.setAttribute('aria-rowindex', String(first + i + 2));
      row.tabIndex = lock.name === this.#current ? 0 : -1;
      fill(row, lock, now);
      if (row === before) before = row.nextSibling;
      else this.#rows.insertBefore(row, before);
    });
  }

  #onClick(event) {
    const row = event.target.closest('tr[data-name]');
    if (row === null) return;
    this.#current = row.dataset.name;
    this.#open(this.#current);
  }

  #onKey(event) {
    const at = this.#list.findIndex(({ name }) => name === this.#current);
    const page = Math.max(1, Math.floor(this.#scroll.clientHeight / ROW_PX) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const ends = { Home: 0, End: this.#list.length - 1 };
    if (event.key === 'Enter' || event.key === ' ') this.#open(this.#current);
    else if (event.key in steps) this.#moveTo(at + steps[event.key]);
    else if (event.key in ends) this.#moveTo(ends[event.key]);
    else return;
    event.preventDefault();
  }

  #moveTo(index) {
    const to = Math.max(0, Math.min(this.#list.length - 1, index));
    const name = this.#list[to]?.name;
    if (name === undefined) return;
    this.#current = name;
    const top = to * ROW_PX;
    const height = this.#scroll.clientHeight - 2 * ROW_PX;
    if (top < this.#scroll.scrollTop) this.#scroll.scrollTop = top;
    else if (top > this.#scroll.scrollTop + height) this.#scroll.scrollTop = top - height;
    this.draw();
    this.#shown.get(name)?.focus({ preventScroll: true });
  }
}

function compare(a, b) {
  return a < b ? -1 : Number(a > b);
}

/** A row that stands for those that are not in the document. */
function spacer() {
  const row = element('tr', '', 'space');
  row.setAttribute('aria-hidden', 'true');
  const cell = document.createElement('td');
  cell.colSpan = Object.keys(KEYS).length;
  row.append(cell);
  return row;
}

function rowFor(name) {
  const row = document.createElement('tr');
  row.dataset.name = name;
  const numbers = ['fence', 'held', 'waiting', 'longest', 'changes'];
  for (const key of Object.keys(KEYS)) {
    row.append(element(key === 'name' ? 'th' : 'td', '', numbers.includes(key) ? 'number' : ''));
  }
  row.cells[0].scope = 'row';
  const bar = document.createElement('progress');
  bar.setAttribute('aria-hidden', 'true');
  row.cells[5].append(bar, element('span'));
  return row;
}

/** Writes what has changed: a text that stays the same is not touched. */
function fill(row, lock, now) {
  const { name, holders, waiters, changes } = lock;
  const [holder] = holders;
  const more = holders.length > 1 ? ` +${holders.length - 1}` : '';
  const longest =
    waiters.length === 0 ? '' : human(now - oldest(waiters.map((each) => each.since)));
  const [own, kind, who, fence, held, lease, waiting, wait, count] = row.cells;
  write(own, printable(name));
  own.title = printable(name);
  write(kind, modeOf(lock) || 'free');
  write(who, holder === undefined ? 'nobody' : printable(nameOf(holder)) + more);
  who.title = holders.map((each) => printable(nameOf(each))).join(', ');
  write(fence, holder?.fence == null ? '' : String(holder.fence));
  write(held, holder === undefined ? '' : heldOf(holder, now));
  drawLease(lease, holder, now);
  write(waiting, waiters.length === 0 ? '' : String(waiters.length));
  waiting.classList.toggle('warn', waiters.length > 0);
  write(wait, longest);
  write(count, String(changes));
}

/** The bar is full at the longest rest of the lease that was seen. */
function drawLease(cell, holder, now) {
  const [bar, text] = cell.children;
  const left =
    holder === undefined || holder.ends === null ? undefined : Math.max(0, holder.ends - now);
  bar.hidden = left === undefined;
  if (left !== undefined) {
    bar.max = Math.max(holder.lease ?? 0, left, 1);
    bar.value = left;
  }
  const soon = left !== undefined && left < SOON_MS;
  bar.classList.toggle('warn', soon);
  text.classList.toggle('warn', soon);
  write(text, holder === undefined ? '' : leaseOf(holder, now));
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
