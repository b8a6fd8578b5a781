/** Goes through the files of a code base: finds locks, judges them, and says what replaces them. */

import { relative, resolve } from 'node:path';
import { findLocks, mayLock } from './find/find.js';
import type { HandLock } from './find/key-command.js';
import type { Fault, Finding, FoundLock } from './find/lock.js';
import { Modules } from './find/modules.js';
import { loadParser, type Parser } from './find/parser.js';
import { parse, type Source } from './find/source.js';
import { listSources, textOf } from './find/walk.js';
import { adviceByHand, adviceOnPackage } from './report/advice.js';
import { type Plan, plan, type ReadFile } from './rewrite/plan.js';
import { writeAll } from './rewrite/write.js';
import { LEVELS, type Level, RULES } from './rules.js';

/** A file that takes locks. */
export interface FoundFile {
  /** Relative to the folder of the command. */
  readonly path: string;
  readonly locks: readonly FoundLock[];
}

/** A file or folder that was not read. */
export interface Unread {
  /** Relative to the folder of the command. */
  readonly path: string;
  readonly reason: string;
}

/** What a run has found. */
export interface Report {
  /** How many files were looked at. */
  readonly files: number;
  /** Files and folders that may hold locks, and that were not read. */
  readonly unread: readonly Unread[];
  readonly found: readonly FoundFile[];
  /** The files that `--write` changes. */
  readonly changes: readonly string[];
  /** Those of them that this run has changed. */
  readonly changed: readonly string[];
  /** Those of them that this run could not change. */
  readonly unchanged: readonly Unread[];
}

/** Longer files are generated. */
const CHARACTERS_MAX = 2_000_000;
const LONG = `longer than ${CHARACTERS_MAX.toLocaleString('en')} characters, as generated code is`;
const NO_PROGRAM = 'no program that can be parsed';

/** What a run is asked for. */
export interface Order {
  /** Files and folders. */
  readonly paths: readonly string[];
  /** Whether files are changed. */
  readonly write: boolean;
  /** The version of holdfast, for `package.json`. */
  readonly version: string;
  /** Called before each file, with the count of those before and of all. */
  readonly progress: (done: number, all: number) => void;
}

/** Looks at all files, and changes what is certain if asked to. */
export async function migrate({ paths, write, version, progress }: Order): Promise<Report> {
  const parser = await loadParser();
  const unread: Unread[] = [];
  const note = (path: string, reason: string): void => {
    unread.push({ path: short(path), reason });
  };
  const unreadable = (path: string, error: unknown): void => note(path, (error as Error).message);
  const files = await listSources(paths, unreadable);
  const modules = new Modules(parser, files);
  const read: ReadFile[] = [];
  for (const [done, path] of files.entries()) {
    progress(done, files.length);
    const text = textOf(path, unreadable);
    if (text === undefined || !mayLock(text)) continue;
    const file = text.length > CHARACTERS_MAX ? LONG : readSource(parser, modules, path, text);
    if (typeof file === 'string') note(path, file);
    else if (file.locks.byHand.length + file.locks.uses.length > 0) read.push(file);
  }
  const planned = plan(
    parser,
    read,
    paths.map((each) => resolve(each)),
    version,
  );
  const { changed, unchanged } = write
    ? await writeAll(planned.changes)
    : { changed: [], unchanged: [] };
  const found = read
    .map((file) => ({ path: short(file.path), locks: locksOf(file, planned) }))
    .filter(({ locks }) => locks.length > 0);
  return {
    files: files.length,
    unread,
    found,
    changes: planned.changes.map(({ path }) => short(path)),
    changed: changed.map(short),
    unchanged: unchanged.map(({ path, reason }) => ({ path: short(path), reason })),
  };
}

/** Reads a text, or says why it cannot be read. */
function readSource(
  parser: Parser,
  modules: Modules,
  path: string,
  text: string,
): ReadFile | string {
  try {
    const source = parse(parser, path, text, modules);
    return source === undefined ? NO_PROGRAM : { path, source, locks: findLocks(source) };
  } catch (error) {
    // Generated code may nest deeper than the stack.
    if (error instanceof RangeError) return NO_PROGRAM;
    throw error;
  }
}

function short(path: string): string {
  return relative(process.cwd(), path);
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

function locksOf({ path, source, locks }: ReadFile, changes: Plan): FoundLock[] {
  const { byHand, uses, faults } = locks;
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
      ...adviceOnPackage(use, changes.moves.get(use)),
    }),
  );
  const isRewritten = changes.byHand.has(path);
  const ofHand = byHand.map(
    ({ lock, faults }): FoundLock => ({
      ...source.placeOf(lock.node.start),
      kind: 'by-hand',
      by: commandOf(lock),
      key: keyOf(source, lock),
      findings: findings(faults),
      ...adviceByHand(source, lock, isRewritten),
    }),
  );
  return [...ofPackages, ...ofHand].sort((a, b) => a.line - b.line || a.column - b.column);
}

function commandOf({ form }: HandLock): string {
  return {
    set: 'SET NX',
    setnx: 'SETNX',
    script: 'script',
    check: 'GET and SET',
    blind: 'SET',
    incr: 'INCR',
    getset: 'GETSET',
  }[form];
}

const KEY_MAX = 60;

function keyOf(source: Source, { acquire }: HandLock): string | null {
  if (acquire?.key === undefined) return null;
  const text = source.textOf(acquire.key).replace(/\s+/g, ' ');
  return text.length > KEY_MAX ? `${text.slice(0, KEY_MAX)}…` : text;
}
