// The page: joins its parts, and draws at most once per frame.

import { keepChoices } from './address.mjs';
import { Details } from './details.mjs';
import { Filters } from './filters.mjs';
import { plural, timeOf, write } from './format.mjs';
import { RISING } from './groups.mjs';
import { drawHappened } from './happened.mjs';
import { Locks } from './locks.mjs';
import { Series } from './series.mjs';
import { Stream } from './stream.mjs';
import { Table } from './table.mjs';
import { Tiles } from './tiles.mjs';

/** How often leases are counted down, in ms. */
const TICK_MS = 500;
/** Where the list of what happened has a column of its own, as in style.css. */
const WIDE = matchMedia('(min-width: 1100px)');

const at = (selector) => document.querySelector(selector);
const locks = new Locks();
const series = new Series();
const details = new Details(locks, series);
const open = (name) => details.open(name);
const table = new Table({ open, redraw }, () => locks.now());
const tiles = new Tiles(open, series);
const filters = new Filters(redraw);
let paused = false;
let scheduled = false;
let followed = false;

const stream = new Stream({
  hello({ title, release }) {
    document.title = title;
    at('#title').textContent = title;
    details.release = release;
  },
  state(all) {
    locks.replace(all);
    happened();
    failure({ message: all.failure });
    looked();
    if (!followed) details.follow();
    followed = true;
  },
  change(some) {
    locks.change(some);
    if (some.happened.length > 0) happened();
    failure({ message: null });
    looked();
  },
  failure,
  away: (text) => say('away', text),
});

function looked() {
  series.note(locks.all(), locks.now());
  say('live', `Live, updated ${timeOf(locks.now())}`);
  redraw();
}

function happened() {
  const latest = drawHappened(at('#happened'), locks.history.all(), open);
  write(at('#latest'), latest);
}

function failure({ message }) {
  at('#failure').hidden = message === null;
  at('#failure').textContent = message === null ? '' : `This is not up to date: ${message}`;
  if (message !== null) say('away', 'The locks cannot be read');
}

function say(state, text) {
  at('#state').dataset.state = paused ? 'paused' : state;
  write(at('#state'), paused ? 'Paused' : text);
}

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  table.groups = filters.inGroups;
  keepChoices({ ...filters.choices, ...table.choices });
  const found = filters.of(locks.all());
  table.show(found);
  const all = plural(locks.size, 'lock');
  write(
    at('#count'),
    found.length === locks.size ? all : `${found.length.toLocaleString('en')} of ${all}`,
  );
  drawEmpty(found.length);
  drawFigures();
  details.draw();
}

function drawEmpty(count) {
  at('#empty').hidden = count > 0;
  const none = locks.size === 0;
  write(at('#empty strong'), none ? 'No lock is held or waited for.' : 'No lock matches.');
  write(
    at('#empty span'),
    none
      ? 'A lock appears here as soon as a process acquires it. Is the prefix the one that your processes have?'
      : 'Search for something else, or choose another kind.',
  );
}

function drawFigures() {
  const summary = locks.summary();
  filters.draw(summary.kinds, locks.size);
  tiles.draw(summary, locks.now());
}

function pause(on) {
  paused = on;
  locks.pause(on);
  at('#pause').setAttribute('aria-pressed', String(on));
  if (on) stream.close();
  else stream.open();
  say('connecting', 'Connecting…');
}

/** On a wide page the list of what happened stays open. */
function arrange() {
  at('#activity').open = WIDE.matches;
}

at('#pause').addEventListener('click', () => pause(!paused));
at('#activity summary').addEventListener('click', (event) => {
  if (WIDE.matches) event.preventDefault();
});
for (const button of document.querySelectorAll('[data-sort]')) {
  button.addEventListener('click', () => {
    table.sortBy(button.dataset.sort);
    redraw();
  });
}
at('#sort').addEventListener('change', ({ target }) => {
  table.sortBy(target.value, RISING.includes(target.value));
  redraw();
});
at('#search').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  // Else the key would press the button that has the focus in the dialog.
  event.preventDefault();
  // The words may be newer than the list.
  draw();
  open(table.first);
});
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target.closest('input, dialog')) return;
  event.preventDefault();
  at('#search').focus();
});
// A page that nobody sees costs the server nothing.
document.addEventListener('visibilitychange', () => {
  if (paused) return;
  if (document.hidden) stream.close();
  else stream.open();
});
setInterval(() => {
  if (document.hidden || paused) return;
  table.draw();
  drawFigures();
  details.draw();
}, TICK_MS);
WIDE.addEventListener('change', arrange);
arrange();
stream.open();
