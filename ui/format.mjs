// What the page says about holders and waiters.

import { human, moment } from './people.mjs';

/** How a lock is held, as people are told; '' while it is free. A leader holds its lock alone. */
export function modeOf({ kind, mode }) {
  return kind === 'leader' && mode === 'exclusive' ? 'leader' : (mode ?? '');
}

/** The name of a holder or waiter: its label, or the end of its client id, which begins with a time. */
export function nameOf({ label, client }) {
  return label ?? client.slice(-8);
}

/** How long a holder has had the lock: `<` at most, `>` at least. */
export function heldOf({ since, began }, now) {
  const sign = { at: '', 'or later': '<', 'or earlier': '>' }[began];
  return sign + human(now - since);
}

/** Since when a holder has had the lock, and how long. */
export function sinceOf({ since, began }, now) {
  return `${moment(new Date(since))}${began === 'at' ? '' : ` ${began}`} (${human(now - since)})`;
}

/** How long a lease still lasts. */
export function leaseOf({ ends }, now) {
  return ends === null ? 'no end' : human(ends - now);
}

/** An element with text in it. Names of locks come from anybody, so nothing here writes HTML. */
export function element(tag, text = '', className = '') {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}
