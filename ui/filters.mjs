// What people choose: a kind, only what is waited for, words, groups.

import { choicesIn } from './address.mjs';
import { element, nameOf, write } from './format.mjs';
import { isWaitedFor, KINDS, kindOf } from './kinds.mjs';

const at = (selector) => document.querySelector(selector);

const LABELS = { all: 'All', ...KINDS, split: 'No majority' };

export class Filters {
  #kind = 'all';
  #chosen;
  #chips = new Map();

  /** `chosen` is called when a person has chosen something else. */
  constructor(chosen) {
    this.#chosen = chosen;
    const { kind, search, waited, groups } = choicesIn(location.search);
    if (Object.hasOwn(LABELS, kind[0] ?? '')) this.#kind = kind[0];
    at('#search').value = search[0] ?? '';
    at('#waited').checked = waited.length > 0;
    at('#groups').checked = groups.length > 0;
    for (const [own, label] of Object.entries(LABELS)) this.#addChip(own, label);
    at('#groups').addEventListener('change', chosen);
    at('#search').addEventListener('input', chosen);
    at('#waited').addEventListener('change', chosen);
  }

  get inGroups() {
    return at('#groups').checked;
  }

  /** What was chosen, for the address. */
  get choices() {
    return {
      kind: this.#kind === 'all' ? '' : this.#kind,
      search: at('#search').value,
      waited: at('#waited').checked ? 'on' : '',
      groups: this.inGroups ? 'on' : '',
    };
  }

  /** Those of the locks that were chosen. */
  of(locks) {
    const words = at('#search').value.toLowerCase();
    const waited = at('#waited').checked;
    const kind = this.#kind;
    const found = [];
    for (const lock of locks) {
      if (waited && !isWaitedFor(lock)) continue;
      if (kind !== 'all' && kindOf(lock) !== kind) continue;
      if (words === '' || textOf(lock).includes(words)) found.push(lock);
    }
    return found;
  }

  /** Writes how many there are of each kind. A kind of which there is none is not offered. */
  draw(kinds, count) {
    for (const [kind, chip] of this.#chips) {
      const own = kind === 'all' ? count : (kinds[kind] ?? 0);
      write(chip.lastChild, own.toLocaleString('en'));
      chip.hidden = own === 0 && kind !== 'all' && kind !== this.#kind;
    }
  }

  #addChip(kind, label) {
    const chip = element('button', '', 'chip');
    chip.type = 'button';
    chip.append(`${label} `, element('span', '0', 'number'));
    chip.setAttribute('aria-pressed', String(kind === this.#kind));
    chip.addEventListener('click', () => this.#choose(kind));
    this.#chips.set(kind, chip);
    at('#kinds').append(chip);
  }

  #choose(kind) {
    this.#kind = kind;
    for (const [own, chip] of this.#chips) chip.setAttribute('aria-pressed', String(own === kind));
    this.#chosen();
  }
}

function textOf({ name, holders, waiters }) {
  const people = [...holders, ...waiters].map((each) => `${nameOf(each)}\n${each.client}`);
  return [name, ...people].join('\n').toLowerCase();
}
