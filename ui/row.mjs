// One row of the list.

import {
  briefUntilOf,
  element,
  heldOf,
  leaseOf,
  nameOf,
  plural,
  untilOf,
  write,
} from './format.mjs';
import { badgeOf, isFull, isWaitedFor, kindOf, urgencyOf, waitedSince } from './kinds.mjs';
import { human, printable } from './shared.mjs';

/** A lease that ends sooner is shown as a warning, in ms. */
const SOON_MS = 2_000;
/** So many holders are named where the pointer rests. */
const TITLE_MAX = 20;
/** So many characters of the end of a long name are always shown. */
const TAIL = 12;
const COLUMNS = [
  'name',
  'kind',
  'holder',
  'held',
  'waiting',
  'longest',
  'lease',
  'fence',
  'changes',
];
const NUMBERS = ['held', 'waiting', 'longest', 'fence', 'changes'];

/** An empty row for a lock, or for the head of a group. */
export function newRow(item) {
  const row = document.createElement('tr');
  row.setAttribute('role', 'row');
  row.dataset.name = item.name;
  if (item.group !== undefined) {
    row.className = 'group';
    const head = element('th');
    head.setAttribute('role', 'rowheader');
    head.append(element('span', '', 'fold'), element('strong'), element('span', '', 'quiet'));
    row.append(head);
    return row;
  }
  for (const column of COLUMNS) {
    const cell = element(column === 'name' ? 'th' : 'td', '', `c-${column}`);
    if (NUMBERS.includes(column)) cell.classList.add('number');
    cell.setAttribute('role', column === 'name' ? 'rowheader' : 'cell');
    row.append(cell);
  }
  row.cells[0].scope = 'row';
  const name = element('span', '', 'cut');
  name.append(element('span'), element('span'));
  row.cells[0].append(name);
  const [, kind, , , , , lease] = row.cells;
  kind.append(element('span', '', 'badge'));
  const bar = document.createElement('progress');
  bar.setAttribute('aria-hidden', 'true');
  lease.append(bar, element('span'));
  return row;
}

/** Writes what has changed. `columns` is how many there are at this width: a head that spans more would make new ones. */
export function fillRow(row, item, now, columns) {
  if (item.group !== undefined) fillGroup(row, item, columns);
  else fillLock(row, item, now);
}

function fillGroup(row, { group, open, count, waiting }, columns) {
  row.cells[0].colSpan = columns;
  const [fold, name, note] = row.cells[0].children;
  row.setAttribute('aria-expanded', String(open));
  write(fold, open ? '▾' : '▸');
  write(name, group === '' ? 'without a prefix' : printable(group));
  write(note, plural(count, 'lock') + (waiting > 0 ? `, ${waiting} waiting` : ''));
}

function fillLock(row, lock, now) {
  const { name, holders, waiters, changes } = lock;
  const [holder] = holders;
  const more = holders.length > 1 ? ` +${holders.length - 1}` : '';
  const kind = kindOf(lock);
  const [own, what, who, held, waiting, wait, lease, fence, count] = row.cells;
  row.dataset.urgency = urgencyOf(lock, now);
  drawName(own, printable(name));
  const [badge] = what.children;
  write(badge, badgeOf(lock));
  badge.dataset.kind = isFull(lock) ? 'full' : kind;
  write(who, whoOf(lock, holder) + more);
  who.title = holders.slice(0, TITLE_MAX).map(nameOf).join(', ');
  who.classList.toggle('quiet', holder === undefined);
  write(
    held,
    holder === undefined || kind === 'done' || kind === 'idle' ? '' : heldOf(holder, now),
  );
  write(waiting, waiters.length === 0 ? '' : String(waiters.length));
  waiting.title = lock.kind === 'leader' ? plural(waiters.length, 'candidate') : '';
  write(wait, isWaitedFor(lock) ? human(now - waitedSince(lock)) : '');
  drawLease(lease, holder, now);
  write(fence, holder?.fence == null ? '' : String(holder.fence));
  fence.title = fence.textContent;
  write(count, changes === 0 ? '' : String(changes));
}

/** A name without room is cut in its middle: names of one kind differ at their ends. */
function drawName(cell, name) {
  const [start, end] = cell.firstChild.children;
  let at = name.length > TAIL * 2 ? name.length - TAIL : name.length;
  // Not within a character of two units.
  if (/[\uDC00-\uDFFF]/.test(name.charAt(at))) at -= 1;
  write(start, name.slice(0, at));
  write(end, name.slice(at));
  cell.title = name;
  // Two parts would be read with a space between them.
  cell.setAttribute('aria-label', name);
}

function whoOf({ votes }, holder) {
  if (holder !== undefined) return nameOf(holder);
  const asking = [...new Set((votes ?? []).flatMap(({ by }) => by ?? []))];
  return asking.length === 0 ? 'nobody' : `asked for by ${asking.join(', ')}`;
}

/** The bar is full at the longest rest of the lease that was seen. */
function drawLease(cell, holder, now) {
  const [bar, text] = cell.children;
  const isDone = holder?.state === 'done';
  const left =
    holder === undefined || isDone || holder.ends === null
      ? undefined
      : Math.max(0, holder.ends - now);
  bar.hidden = left === undefined;
  if (left !== undefined) {
    bar.max = Math.max(holder.lease ?? 0, left, 1);
    bar.value = left;
  }
  const soon = left !== undefined && left < SOON_MS;
  bar.classList.toggle('warn', soon);
  text.classList.toggle('warn', soon);
  if (holder === undefined) write(text, '');
  else write(text, isDone ? briefUntilOf(holder) : leaseOf(holder, now));
  text.title = isDone
    ? `done ${untilOf(holder)}${holder.result ? ', its result is kept' : ''}`
    : '';
}
