// Draws mistakes, and tells how many of each part were noticed.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './copy.mjs';

/** Mistakes that change nothing that anybody sees, each with the reason. */
const EQUIVALENT = join(ROOT, 'test', 'mutants', 'equivalent.json');
const Z = 1.96;

/** The reasons of those that were judged to change nothing, by their keys. */
export function equivalents() {
  const judged = existsSync(EQUIVALENT) ? JSON.parse(readFileSync(EQUIVALENT, 'utf8')) : [];
  return new Map(judged.map(({ mistake, reason }) => [mistake, reason]));
}

/** A list in an order that the seed decides. */
export function shuffled(list, seed) {
  const next = random(seed);
  const rest = [...list];
  for (let at = rest.length - 1; at > 0; at--) {
    const other = Math.floor(next() * (at + 1));
    [rest[at], rest[other]] = [rest[other], rest[at]];
  }
  return rest;
}

/** By its text rather than its line, which moves. */
export function keyOf(mistake) {
  return `${mistake.file}: ${changeOf(mistake)}`;
}

export function describe(mistake) {
  return `${mistake.file}:${mistake.line}: ${changeOf(mistake)}`;
}

function changeOf({ kind, was, becomes }) {
  return `${kind}: ${shown(was)} -> ${shown(becomes)}`;
}

function shown(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

/**
 * Tells how many of each part, and of all, were noticed, with the interval that has the true rate with 95 %. Each is
 * `{ part, word }`; one that is 'undecided' counts as one that is 'missed'.
 */
export function tell(judged) {
  const parts = [...new Set(judged.map(({ part }) => part))].sort();
  for (const name of parts) {
    const ofPart = judged.filter(({ part }) => part === name);
    tellPart(name, ofPart);
  }
  tellPart('all', judged);
}

function tellPart(part, list) {
  const of = list.length;
  const count = (wanted) => list.filter(({ word }) => word === wanted).length;
  const [noticed, undecided] = [count('noticed'), count('undecided')];
  const [low, high] = wilson(noticed, of).map((rate) => Math.round(100 * rate));
  const rate = Math.round((100 * noticed) / of);
  const rest = undecided === 0 ? '' : `; ${undecided} undecided`;
  console.log(
    `${part.padEnd(28)} ${noticed} of ${of} noticed, ${rate} % (${low} to ${high} %)${rest}`,
  );
}

/** mulberry32: numbers from 0 to 1. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function wilson(noticed, of) {
  const rate = noticed / of;
  const middle = rate + Z ** 2 / (2 * of);
  const reach = Z * Math.sqrt((rate * (1 - rate)) / of + Z ** 2 / (4 * of ** 2));
  const scale = 1 + Z ** 2 / of;
  return [(middle - reach) / scale, (middle + reach) / scale];
}
