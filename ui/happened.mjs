// What happened: to all locks, and to one.

import { element, shortOf, timeOf } from './format.mjs';
import { moment, PER_LOCK_MAX, printable } from './shared.mjs';

/** What happens to one lock within so many ms is one item. */
const FOLD_MS = 60_000;
const ITEMS_MAX = 100;

/** Joins what happened to the same lock within a minute: a lock in constant motion leaves room for the others. The latest first. */
export function fold(happened) {
  const items = [];
  const latest = new Map();
  for (const each of happened.toReversed()) {
    const item = latest.get(each.name);
    if (item !== undefined && item.first - each.at < FOLD_MS) {
      item.count += 1;
      item.first = each.at;
      continue;
    }
    const made = { last: each, first: each.at, count: 1 };
    latest.set(each.name, made);
    items.push(made);
  }
  return items.slice(0, ITEMS_MAX);
}

/** Draws the list about all locks. `open` opens one. */
export function drawHappened(list, happened, open) {
  const items = fold(happened).map(({ last, first, count }) => {
    const item = document.createElement('li');
    const name = element('button', printable(last.name), 'link');
    name.type = 'button';
    // A narrow page shows only its beginning.
    name.title = name.textContent;
    name.addEventListener('click', () => open(last.name));
    item.append(element('time', timeOf(last.at)), name, ` ${sentence(last)}`);
    if (count > 1) {
      const folded = element('span', `×${count}`, 'times');
      folded.title = `${count} changes since ${timeOf(first)}`;
      item.append(' ', folded);
    }
    return item;
  });
  const none = element('li', 'No changes since this page opened.', 'quiet');
  list.replaceChildren(...(items.length === 0 ? [none] : items));
  return items[0] === undefined ? '' : [...items[0].childNodes].map(textOf).join(' ');
}

/** Draws the history of one lock, the latest first, with a mark where nobody watched. */
export function drawHistory(list, name, history) {
  const own = history.of(name).map((each) => ({ at: each.at, each }));
  const lines = [...own, { at: history.since, cut: own.length >= PER_LOCK_MAX }];
  for (const gap of history.gaps) {
    // Gaps between which nothing was seen are one mark.
    const same = lines.find(
      (line) => line.gap && !own.some(({ at }) => at > line.at && at < gap.to),
    );
    if (same === undefined) lines.push({ at: gap.to, gap: { ...gap }, count: 1 });
    else
      Object.assign(same, {
        at: gap.to,
        gap: { from: same.gap.from, to: gap.to },
        count: same.count + 1,
      });
  }
  // What a look finds after a gap comes after the mark.
  lines.sort((a, b) => b.at - a.at || Number('gap' in a) - Number('gap' in b));
  list.replaceChildren(...lines.map(lineOf));
}

function lineOf({ at, each, gap, count, cut }) {
  const line = element('li', '', each === undefined ? 'gap' : '');
  if (gap !== undefined) {
    const parts = count > 1 ? ` for ${count} parts of the time` : '';
    line.append(
      `Nobody watched${parts} from ${moment(new Date(gap.from))} to ${moment(new Date(gap.to))}.`,
    );
  } else if (each === undefined) {
    line.append(cut ? 'Earlier changes are not kept.' : `Watched since ${moment(new Date(at))}.`);
  } else {
    const words = sentence(each);
    line.append(element('time', moment(new Date(at))), words[0].toUpperCase() + words.slice(1));
  }
  return line;
}

function textOf({ textContent }) {
  return textContent.trim();
}

function sentence({ kind, from, to }) {
  if (kind === 'acquired') return `acquired by ${names(to)}`;
  if (kind === 'done') return `done by ${names(to)}`;
  if (kind === 'freed') return `freed by ${names(from)}`;
  if (clients(from) === clients(to)) return `acquired anew by ${names(to)}: a new hold`;
  // Two processes with one label differ by their ids.
  const alike = names(from) === names(to);
  return `moved from ${names(from, alike)} to ${names(to, alike)}`;
}

function names(people, withClient = false) {
  return people
    .map(({ name, client }) => name + (withClient ? ` (${shortOf(printable(client))})` : ''))
    .join(', ');
}

function clients(people) {
  return people
    .map(({ client }) => client)
    .sort()
    .join();
}
