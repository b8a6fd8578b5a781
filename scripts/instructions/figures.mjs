// The figures that a lock must not exceed, in figures.json.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = join(import.meta.dirname, 'figures.json');

const KINDS = ['instructions', 'memory'];

/** More than this part above its figure is too much. */
const TOLERANCES = {
  // Counts of one build differ by up to 2.5 %, since a turn of the event loop reads as many answers as have come.
  instructions: 0.03,
  // A process's memory varies by a megabyte, which is 25 bytes for each of 40 000 locks.
  memory: 0.1,
};

/** Those of what varies more: with the moments at which the event loop turns, or with the pages that the allocator keeps. */
const WIDER = {
  'request, 64 in flight': 0.04,
  'handoff between managers': 0.04,
  'hold by linger': 0.06,
  'idle manager': 0.5,
};

export function readFigures() {
  return JSON.parse(readFileSync(FILE, 'utf8'));
}

/** Keeps the figures of what was not measured now. */
export function writeFigures(measured) {
  let known = {};
  try {
    known = readFigures();
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  const all = KINDS.map((kind) => [kind, { ...known[kind], ...measured[kind] }]);
  writeFileSync(FILE, `${JSON.stringify(Object.fromEntries(all), null, 2)}\n`);
}

/** Why a measurement is too high, or undefined. Both are numbers, or records of the parts of a number, `all`. */
export function excess(kind, name, now, figure) {
  if (figure === undefined) return `${name}: no figure; run with --accept`;
  const [is, was] = [now, figure].map((each) => (typeof each === 'number' ? each : each.all));
  if (is <= was * (1 + (WIDER[name] ?? TOLERANCES[kind]))) return undefined;
  const more = `${name}: ${(100 * (is / was - 1)).toFixed(1)} % more than ${was}`;
  if (typeof now === 'number') return more;
  const parts = Object.keys(now).filter((part) => part !== 'all');
  return `${more}: ${parts.map((part) => `${part} ${figure[part]} -> ${now[part]}`).join(', ')}`;
}

/** The lower one: what else a machine does only adds. */
export function lower(one, other) {
  const total = (each) => (typeof each === 'number' ? each : each.all);
  return other === undefined || total(one) <= total(other) ? one : other;
}
