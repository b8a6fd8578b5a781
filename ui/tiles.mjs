// The figures at the top, and the three locks that are waited for most.

import { element, nameOf, plural, write } from './format.mjs';
import { heldSince, urgencyOf, waitedSince } from './kinds.mjs';
import { human, printable } from './shared.mjs';
import { drawSpark } from './spark.mjs';

const HOTTEST = 3;
const at = (selector) => document.querySelector(selector);

export class Tiles {
  #open;
  #series;
  /** The cards of the locks that are waited for most. */
  #cards = [];

  /** `open` opens a lock; `series` has the recent waits of each. */
  constructor(open, series) {
    this.#open = open;
    this.#series = series;
    for (const tile of document.querySelectorAll('[data-tile]')) {
      tile.querySelector('button')?.addEventListener('click', () => open(tile.dataset.lock));
    }
  }

  draw(summary, now) {
    const [longest] = summary.waited;
    tell(
      'held',
      summary.held.toLocaleString('en'),
      plural(summary.kinds.done ?? 0, 'finished slot'),
    );
    tell(
      'waiting',
      summary.waiting.toLocaleString('en'),
      `for ${plural(summary.waited.length, 'lock')}`,
    );
    tell('longest', longest === undefined ? '–' : human(now - waitedSince(longest)), longest);
    tell(
      'oldest',
      summary.oldest === null ? '–' : human(now - heldSince(summary.oldest)),
      summary.oldest,
    );
    tell(
      'full',
      summary.full.toLocaleString('en'),
      `of ${plural(summary.semaphores, 'semaphore')}`,
    );
    at('[data-tile=longest]').dataset.urgency =
      longest === undefined ? '' : urgencyOf(longest, now);
    at('[data-tile=full]').dataset.urgency = summary.full > 0 ? 'long' : '';
    this.#drawHottest(summary.waited, now);
  }

  #drawHottest(waited, now) {
    const most = (lock) => lock.waiters.length;
    const hottest = waited
      .toSorted((a, b) => most(b) - most(a) || waitedSince(a) - waitedSince(b))
      .slice(0, HOTTEST);
    at('#hottest').hidden = hottest.length === 0;
    while (this.#cards.length < hottest.length) this.#cards.push(this.#newCard());
    this.#cards.forEach((card, i) => {
      card.hidden = hottest[i] === undefined;
      if (!card.hidden) this.#fillCard(card, hottest[i], now);
    });
  }

  #newCard() {
    const item = document.createElement('li');
    const button = element('button', '', 'hot');
    button.type = 'button';
    button.append(
      element('strong', '', 'name'),
      element('span', '', 'count'),
      element('span', '', 'who'),
      element('span', '', 'spark'),
    );
    button.addEventListener('click', () => this.#open(item.dataset.lock));
    item.append(button);
    at('#hottest ol').append(item);
    return item;
  }

  #fillCard(card, lock, now) {
    const [holder] = lock.holders;
    const more = lock.holders.length > 1 ? ` +${lock.holders.length - 1}` : '';
    card.dataset.lock = lock.name;
    card.firstChild.dataset.urgency = urgencyOf(lock, now);
    const [name, count, who, spark] = card.firstChild.children;
    write(name, printable(lock.name));
    write(count, `${lock.waiters.length} waiting, ${human(now - waitedSince(lock))}`);
    write(who, holder === undefined ? 'held by nobody' : `held by ${nameOf(holder)}${more}`);
    drawSpark(spark, this.#series.waits(lock.name));
  }
}

/** Writes a tile; with a lock as its note, the note opens that lock. */
function tell(which, value, note) {
  const tile = at(`[data-tile=${which}]`);
  write(tile.querySelector('.value'), value);
  const own = tile.querySelector('.note');
  if (typeof note === 'string') return write(own, note);
  own.hidden = note == null;
  if (note == null) return;
  tile.dataset.lock = note.name;
  write(own, printable(note.name));
  own.title = printable(note.name);
}
