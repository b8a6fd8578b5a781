// The page: takes the stream of the server, and draws at most once per frame.

import { Details } from './details.mjs';
import { element } from './format.mjs';
import { clock, printable } from './people.mjs';
import { Table } from './table.mjs';

/** How often leases are counted down, in ms. */
const TICK_MS = 500;
/** So many happenings are kept. */
const HAPPENED_MAX = 200;

const at = (selector) => document.querySelector(selector);
const locks = new Map();
let happened = [];
/** How far the clock of this browser is ahead of the server's, in ms. */
let skew = 0;
let stream;
let paused = false;
let scheduled = false;

const now = () => (paused ? paused : Date.now()) - skew;
const details = new Details((name) => locks.get(name), now);
const table = new Table((name) => details.open(name), now);

function connect() {
  stream?.close();
  stream = new EventSource('events');
  stream.addEventListener('hello', ({ data }) => onHello(JSON.parse(data)));
  stream.addEventListener('state', ({ data }) => onState(JSON.parse(data)));
  stream.addEventListener('change', ({ data }) => onChange(JSON.parse(data)));
  stream.addEventListener('failure', ({ data }) => onFailure(JSON.parse(data)));
  stream.addEventListener('error', () => {
    const ended = stream.readyState === EventSource.CLOSED;
    say(
      'away',
      ended ? 'Not connected: reload the page, or open its address again' : 'Connecting…',
    );
  });
}

function onHello({ title, release }) {
  document.title = title;
  at('#title').textContent = title;
  details.release = release;
}

function onState({ now: time, rows, happened: all, failure }) {
  locks.clear();
  take(rows);
  happened = all;
  drawHappened();
  onFailure({ message: failure });
  onLook(time);
}

function onChange({ now: time, rows, gone, leases, happened: more }) {
  for (const name of gone) locks.delete(name);
  take(rows);
  for (const [name, ends] of leases) {
    locks.get(name)?.holders.forEach((holder, i) => {
      holder.ends = ends[i];
      noteLease(holder, time);
    });
  }
  if (more.length > 0) {
    happened = [...happened, ...more].slice(-HAPPENED_MAX);
    drawHappened();
  }
  onFailure({ message: null });
  onLook(time);
}

function onLook(time) {
  skew = Date.now() - time;
  say('live', `Looked at ${clock(new Date(time))}`);
  redraw();
}

function onFailure({ message }) {
  at('#failure').hidden = message === null;
  at('#failure').textContent = message === null ? '' : `This is not up to date: ${message}`;
  if (message !== null) say('away', 'The locks cannot be read');
}

function say(state, text) {
  at('#state').dataset.state = paused ? 'paused' : state;
  at('#state').textContent = paused ? 'Paused' : text;
}

function take(rows) {
  for (const row of rows) {
    const time = Date.now() - skew;
    for (const holder of row.holders) noteLease(holder, time);
    locks.set(row.name, row);
  }
}

/** Keeps how long the lease was when it was last lengthened, for its bar. */
function noteLease(holder, time) {
  if (holder.ends !== null) holder.lease = Math.max(1, holder.ends - time);
}

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  const words = at('#search').value.toLowerCase();
  const waited = at('#waited').checked;
  const count = table.show(
    locks.values(),
    (lock) =>
      (!waited || lock.waiters.length > 0) && (words === '' || textOf(lock).includes(words)),
  );
  const shown = count === locks.size ? `${count} locks` : `${count} of ${locks.size} locks`;
  if (at('#count').textContent !== shown) at('#count').textContent = shown;
  at('#empty').hidden = count > 0;
  at('#empty').textContent =
    locks.size === 0 ? 'No lock is held or waited for.' : 'No lock matches the search.';
  details.draw();
}

function textOf({ name, holders, waiters }) {
  const people = [...holders, ...waiters].map(({ label, client }) => `${label ?? ''}\n${client}`);
  return [name, ...people].join('\n').toLowerCase();
}

function drawHappened() {
  const items = happened.toReversed().map(({ at: time, name, kind, from, to }) => {
    const item = document.createElement('li');
    item.append(element('time', clock(new Date(time))), element('strong', printable(name)));
    item.append(element('span', ` ${sentence(kind, from.map(printable), to.map(printable))}`));
    return item;
  });
  at('#happened').replaceChildren(...items);
}

function sentence(kind, from, to) {
  if (kind === 'acquired') return `acquired by ${to.join(', ')}`;
  if (kind === 'moved') return `moved from ${from.join(', ')} to ${to.join(', ')}`;
  return `freed by ${from.join(', ')}`;
}

function pause(on) {
  paused = on ? Date.now() : false;
  at('#pause').setAttribute('aria-pressed', String(on));
  if (on) stream.close();
  else connect();
  say('connecting', 'Connecting…');
}

at('#search').addEventListener('input', redraw);
at('#waited').addEventListener('change', redraw);
at('#pause').addEventListener('click', () => pause(!paused));
for (const button of document.querySelectorAll('[data-sort]')) {
  button.addEventListener('click', () => {
    table.sortBy(button.dataset.sort);
    redraw();
  });
}
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target.closest('input, dialog')) return;
  event.preventDefault();
  at('#search').focus();
});
// A page that nobody sees costs the server nothing.
document.addEventListener('visibilitychange', () => {
  if (paused) return;
  if (document.hidden) stream.close();
  else connect();
});
setInterval(() => {
  if (document.hidden || paused) return;
  table.draw();
  details.draw();
}, TICK_MS);
connect();
