// Times and names for people.

/** A length of time in ms: 850ms, 8.2s, 3m20s, 2h05m, 3d04h. */
export function human(ms) {
  const seconds = Math.max(0, ms) / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3_600) return pair(seconds / 60, 60, 'm', 's');
  if (seconds < 86_400) return pair(seconds / 3_600, 60, 'h', 'm');
  return pair(seconds / 86_400, 24, 'd', 'h');
}

function pair(value, parts, unit, part) {
  const rest = Math.floor((value % 1) * parts);
  return `${Math.floor(value)}${unit}${String(rest).padStart(2, '0')}${part}`;
}

/** The time of day, 24 h. */
export function clock(time) {
  return new Date(time).toTimeString().slice(0, 8);
}

/** Characters that could change the direction of text, or that nobody sees, are written as escapes. */
export function printable(text) {
  return text.replace(/\p{C}/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
}

/** The name of a holder or waiter: its label, or the beginning of its client id. */
export function nameOf({ label, client }) {
  return label ?? client.slice(0, 8);
}

/** How long a holder has had the lock. */
export function heldOf({ since, exact }, now) {
  return `${exact ? '' : '>'}${human(now - since)}`;
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
