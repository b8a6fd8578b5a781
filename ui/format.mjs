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

/** A moment: the time of day, with its date unless that is today. */
export function moment(time) {
  const date = new Date(time);
  if (date.toDateString() === new Date().toDateString()) return clock(time);
  const parts = [date.getFullYear(), date.getMonth() + 1, date.getDate()];
  return `${parts.map((part) => String(part).padStart(2, '0')).join('-')} ${clock(time)}`;
}

/** Characters that could change the direction of text, or that nobody sees, are written as escapes. */
export function printable(text) {
  return text.replace(/\p{C}/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
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
  return `${moment(since)}${began === 'at' ? '' : ` ${began}`} (${human(now - since)})`;
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
