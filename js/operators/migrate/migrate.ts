/** Goes through the files of a code base: finds locks, judges them, and says what replaces them. */

import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { HandLock } from './find/by-hand.js';
import { findLocks, mayLock } from './find/find.js';
import type { Fault } from './find/judge.js';
import type { Finding, FoundLock } from './find/lock.js';
import type { PackageUse } from './find/packages.js';
import { loadParser } from './find/parser.js';
import { parse, type Source } from './find/source.js';
import { LEVELS, type Level, RULES } from './rules.js';

/** A file that takes locks. */
export interface FoundFile {
  /** Relative to the folder of the command. */
  readonly path: string;
  readonly locks: readonly FoundLock[];
}

/** What a run has found. */
export interface Report {
  /** How many files were looked at. */
  readonly files: number;
  /** Files that look like locks, and that the parser cannot read. */
  readonly unread: readonly string[];
  readonly found: readonly FoundFile[];
}

/** Longer files are generated. */
const CHARACTERS_MAX = 2_000_000;

/** Looks at all files. `progress` is called before each, with the count of those before. */
export async function migrate(
  files: readonly string[],
  progress: (done: number) => void,
): Promise<Report> {
  const parser = await loadParser();
  const [unread, found]: [string[], FoundFile[]] = [[], []];
  for (const [done, file] of files.entries()) {
    progress(done);
    const text = readFileSync(file, 'utf8');
    if (text.length > CHARACTERS_MAX || !mayLock(text)) continue;
    const path = relative(process.cwd(), file);
    const source = parse(parser, file, text);
    if (source === undefined) unread.push(path);
    else {
      const locks = locksOf(source);
      if (locks.length > 0) found.push({ path, locks });
    }
  }
  return { files: files.length, unread, found };
}

/** The gravest level of what was found; undefined if nothing is wrong. */
export function worstOf({ found }: Report): Level | undefined {
  const levels = new Set(
    found.flatMap(({ locks }) =>
      locks.flatMap(({ findings }) => findings.map(({ rule }) => RULES[rule].level)),
    ),
  );
  return LEVELS.find((level) => levels.has(level));
}

function locksOf(source: Source): FoundLock[] {
  const { byHand, uses, faults } = findLocks(source);
  const shown = new Set<string>();
  const findings = (all: readonly Fault[]): Finding[] =>
    all.flatMap(({ rule, node }) => {
      const place = source.placeOf(node.start);
      const id = `${rule} ${place.line} ${place.column}`;
      if (shown.has(id)) return [];
      shown.add(id);
      return [{ rule, ...place }];
    });
  const packages = uses.filter(({ onlyTypes, form }) => !onlyTypes && form !== 'mock');
  const ofPackages = packages.map(
    (use, i): FoundLock => ({
      ...source.placeOf(use.node.start),
      kind: 'package',
      by: use.package.name,
      key: null,
      // What is wrong with the use of one of several packages is told with the first.
      findings: findings(
        faults.filter(({ node, rule }) =>
          rule === 'superseded-package' ? node === use.node : i === 0,
        ),
      ),
      advice: adviceOfPackage(use),
      rewritten: false,
    }),
  );
  const ofHand = byHand.map(
    ({ lock, faults }): FoundLock => ({
      ...source.placeOf(lock.node.start),
      kind: 'by-hand',
      by: commandOf(lock),
      key: keyOf(source, lock),
      findings: findings(faults),
      advice: 'locks.request or locks.tryAcquire',
      rewritten: false,
    }),
  );
  return [...ofPackages, ...ofHand].sort((a, b) => a.line - b.line || a.column - b.column);
}

function adviceOfPackage(use: PackageUse): string {
  return `see docs/migration.md for ${use.package.name}`;
}

function commandOf({ form }: HandLock): string {
  return { set: 'SET NX', setnx: 'SETNX', script: 'script', check: 'GET and SET', incr: 'INCR' }[
    form
  ];
}

const KEY_MAX = 60;

function keyOf(source: Source, { acquire }: HandLock): string | null {
  if (acquire?.key === undefined) return null;
  const text = source.textOf(acquire.key).replace(/\s+/g, ' ');
  return text.length > KEY_MAX ? `${text.slice(0, KEY_MAX)}…` : text;
}
