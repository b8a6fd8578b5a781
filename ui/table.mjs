// The list of locks: chosen and sorted whole, but only the rows that can be seen are in the document.

import { choicesIn } from './address.mjs';
import { element } from './format.mjs';
import { grouped, KEYS, RISING, sorted } from './groups.mjs';
import { fillRow, newRow } from './row.mjs';

/** Rows above and below the visible ones. */
const BESIDES = 8;

export class Table {
  #rows = document.querySelector('#rows');
  #scroll = document.querySelector('#scroll');
  #table = document.querySelector('#table');
  #above = spacer();
  #below = spacer();
  /** The rows in the document, by their names. */
  #shown = new Map();
  #list = [];
  /** Where each item of the list begins, in px, and the end of the last. */
  #tops = [0];
  #columns = 1;
  #sort = { by: 'name', rising: true };
  #closed = new Set();
  /** Whether the list is in groups by prefix. */
  groups = false;
  /** The row that the arrow keys are at. */
  #current = '';
  #on;
  #now;

  /** `on.open` is called with the name of a lock that a person opens, `on.redraw` when the order changes. */
  constructor(on, now) {
    this.#on = on;
    this.#now = now;
    this.#nameParts();
    this.#takeChoices();
    this.#rows.append(this.#above, this.#below);
    this.#scroll.addEventListener('scroll', () => this.draw());
    // On a phone the whole page scrolls.
    addEventListener('scroll', () => this.draw(), { passive: true });
    this.#rows.addEventListener('click', (event) => this.#onClick(event));
    this.#rows.addEventListener('keydown', (event) => this.#onKey(event));
    new ResizeObserver(() => {
      this.#measure();
      this.draw();
    }).observe(this.#scroll);
  }

  /** The order and the closed groups, as the address says. */
  #takeChoices() {
    const { sort, closed } = choicesIn(location.search);
    const [, falls, by] = /^(-?)(.*)$/s.exec(sort[0] ?? '');
    if (Object.hasOwn(KEYS, by)) this.sortBy(by, falls === '');
    this.#closed = new Set(closed);
  }

  /** What was chosen, for the address: `-` stands before a column whose greatest comes first. */
  get choices() {
    const { by, rising } = this.#sort;
    const sort = by === 'name' && rising ? '' : `${rising ? '' : '-'}${by}`;
    // The group without a prefix has no name: it opens again.
    return { sort, closed: [...this.#closed] };
  }

  /** Where the style makes cards of the rows, browsers would forget that they are a table's. */
  #nameParts() {
    const { tHead } = this.#table;
    this.#table.setAttribute('role', 'table');
    for (const part of [tHead, this.#rows]) part.setAttribute('role', 'rowgroup');
    tHead.rows[0].setAttribute('role', 'row');
    for (const head of tHead.rows[0].cells) head.setAttribute('role', 'columnheader');
  }

  /** Sorts by a column, or the other way round if it is sorted by it already. */
  sortBy(by, rising = this.#sort.by === by ? !this.#sort.rising : RISING.includes(by)) {
    this.#sort = { by, rising };
    document.querySelector('#sort').value = by;
    for (const button of document.querySelectorAll('[data-sort]')) {
      const own = button.dataset.sort === by;
      const head = button.closest('th');
      if (own) head.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
      else head.removeAttribute('aria-sort');
    }
  }

  /** Shows these locks. */
  show(locks) {
    const inOrder = sorted(locks, this.#sort, this.#now());
    this.#list = this.groups ? grouped(inOrder, this.#closed) : inOrder;
    this.#table.setAttribute('aria-rowcount', String(this.#list.length + 1));
    this.#measure();
    this.draw();
  }

  /** The name of the first lock of the list. */
  get first() {
    return this.#list.find(({ group }) => group === undefined)?.name;
  }

  /** Brings the visible rows up to date. */
  draw() {
    const count = this.#list.length;
    const { top, bottom } = this.#visible();
    const first = Math.max(0, this.#indexAt(top) - BESIDES);
    const end = Math.min(count, this.#indexAt(bottom) + 1 + BESIDES);
    const focused = document.activeElement?.dataset?.name;
    const visible = this.#list.slice(first, end);
    this.#insert(visible, first);
    this.#above.firstChild.style.height = `${this.#tops[first]}px`;
    this.#below.firstChild.style.height = `${this.#tops[count] - this.#tops[end]}px`;
    // Last: while the list is shorter than it is to be, the browser would scroll back.
    this.#removeAllBut(visible);
    // A row that moved has lost the focus.
    const again = focused === undefined ? undefined : this.#shown.get(focused);
    if (again !== undefined && document.activeElement !== again)
      again.focus({ preventScroll: true });
  }

  /** The part of the rows that can be seen, in px from their top. */
  #visible() {
    const frame = this.#scroll.getBoundingClientRect();
    const start = this.#rows.getBoundingClientRect().top;
    const top = Math.max(0, frame.top) - start;
    return { top, bottom: Math.max(top, Math.min(innerHeight, frame.bottom) - start) };
  }

  /** Where each item begins: the style knows how high a row is at this width. */
  #measure() {
    const style = getComputedStyle(this.#scroll);
    const lock = Number.parseFloat(style.getPropertyValue('--row'));
    const group = Number.parseFloat(style.getPropertyValue('--group'));
    const heads = [...this.#table.tHead.rows[0].cells];
    this.#columns = heads.filter((head) => head.offsetWidth > 0).length || 1;
    let top = 0;
    this.#tops = [0, ...this.#list.map((item) => (top += item.group === undefined ? lock : group))];
  }

  /** The item that is at a height. */
  #indexAt(px) {
    let [low, high] = [0, Math.max(0, this.#list.length - 1)];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.#tops[middle] <= px) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #removeAllBut(visible) {
    const names = new Set(visible.map(({ name }) => name));
    for (const [name, row] of this.#shown) {
      if (names.has(name)) continue;
      row.remove();
      this.#shown.delete(name);
    }
  }

  #insert(visible, first) {
    const isHere = visible.some(({ name }) => name === this.#current);
    if (!isHere) this.#current = visible[0]?.name ?? '';
    const now = this.#now();
    let before = this.#above.nextSibling;
    visible.forEach((item, i) => {
      const row = this.#shown.get(item.name) ?? newRow(item);
      this.#shown.set(item.name, row);
      row.setAttribute('aria-rowindex', String(first + i + 2));
      row.tabIndex = item.name === this.#current ? 0 : -1;
      fillRow(row, item, now, this.#columns);
      if (row === before) before = row.nextSibling;
      else this.#rows.insertBefore(row, before);
    });
  }

  #onClick(event) {
    const row = event.target.closest('tr[data-name]');
    if (row === null) return;
    this.#current = row.dataset.name;
    this.#use();
  }

  /** Opens the current lock, or opens or closes the current group. */
  #use() {
    const item = this.#list.find(({ name }) => name === this.#current);
    if (item?.group === undefined) return this.#on.open(this.#current);
    if (item.open) this.#closed.add(item.group);
    else this.#closed.delete(item.group);
    this.#on.redraw();
  }

  #onKey(event) {
    const at = this.#list.findIndex(({ name }) => name === this.#current);
    const { top, bottom } = this.#visible();
    const page = Math.max(1, this.#indexAt(bottom) - this.#indexAt(top) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const ends = { Home: 0, End: this.#list.length - 1 };
    if (event.key === 'Enter' || event.key === ' ') this.#use();
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
    this.#scrollTo(to);
    this.draw();
    this.#shown.get(name)?.focus({ preventScroll: true });
  }

  #scrollTo(index) {
    const { top, bottom } = this.#visible();
    const head = this.#table.tHead.offsetHeight;
    const [start, end] = [this.#tops[index], this.#tops[index + 1]];
    const inside = getComputedStyle(this.#scroll).overflowY !== 'visible';
    const scroller = inside ? this.#scroll : document.scrollingElement;
    if (start < top + head) scroller.scrollTop += start - top - head;
    else if (end > bottom) scroller.scrollTop += end - bottom;
  }
}

/** A row that stands for those that are not in the document. */
function spacer() {
  const row = element('tr', '', 'space');
  row.setAttribute('aria-hidden', 'true');
  const cell = document.createElement('td');
  row.append(cell);
  return row;
}
