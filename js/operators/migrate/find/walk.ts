/** The files that the command reads: sources of JavaScript and TypeScript that no `.gitignore` names. */

import { constants } from 'node:buffer';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import type { Ignore } from 'ignore';
import { loadPeer } from './parser.js';

const SOURCE = /\.[cm]?[jt]sx?$/;
const DECLARATION = /\.d\.[cm]?ts$/;

/** Folders that hold no code of the project, whatever `.gitignore` says. */
const NEVER = new Set(['.git', '.hg', '.svn', 'bower_components', 'node_modules', '.yarn']);

/** The rules of one `.gitignore`, for the paths below its folder. */
interface Rules {
  readonly folder: string;
  readonly ignore: Ignore;
}

/** Called for a file or folder that the system does not let the command read. */
export type Unreadable = (path: string, error: unknown) => void;

/**
 * Lists sources below `paths`, each once, in the order of their names. A path that names a file is always listed, and a
 * link is followed only if a path names it. Throws the error of the system if a path does not exist.
 */
export async function listSources(
  paths: readonly string[],
  unreadable: Unreadable,
): Promise<string[]> {
  const make = await loadIgnore();
  const found = new Set<string>();
  const visit = (folder: string, above: readonly Rules[]): void => {
    const read = () => readdirSync(folder, { withFileTypes: true });
    const entries = attempt(folder, unreadable, read) ?? [];
    const rules = [...above, ...rulesOf(folder, make, unreadable)];
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(folder, entry.name);
      const isFolder = entry.isDirectory();
      if (NEVER.has(entry.name) || isIgnored(path, isFolder, rules)) continue;
      if (isFolder) visit(path, rules);
      else if (entry.isFile() && isSource(entry.name)) found.add(path);
    }
  };
  for (const path of paths.map((each) => resolve(each))) {
    if (statSync(path).isDirectory()) visit(path, rulesAbove(path, make, unreadable));
    else found.add(path);
  }
  return [...found];
}

/** Does what reads a path; undefined if the system refuses that, which is then told. */
function attempt<T>(path: string, unreadable: Unreadable, reads: () => T): T | undefined {
  try {
    return reads();
  } catch (error) {
    unreadable(path, error);
    return undefined;
  }
}

/** The text of a file; undefined if it is longer than any text may be, or if the system refuses it, which is then told. */
export function textOf(path: string, unreadable: Unreadable): string | undefined {
  return attempt(path, unreadable, () => {
    if (statSync(path).size > constants.MAX_STRING_LENGTH) throw new Error('too long for a text');
    return readFileSync(path, 'utf8');
  });
}

function isSource(name: string): boolean {
  return SOURCE.test(name) && !DECLARATION.test(name);
}

async function loadIgnore(): Promise<() => Ignore> {
  const module = await loadPeer<{ default: (() => Ignore) & { default?: () => Ignore } }>('ignore');
  return module.default.default ?? module.default;
}

function rulesOf(folder: string, make: () => Ignore, unreadable: Unreadable): Rules[] {
  const file = join(folder, '.gitignore');
  if (!existsSync(file)) return [];
  const text = attempt(file, unreadable, () => readFileSync(file, 'utf8'));
  return text === undefined ? [] : [{ folder, ignore: make().add(text) }];
}

/** The rules of the folders above, up to the root of the repository; none outside of a repository. */
function rulesAbove(folder: string, make: () => Ignore, unreadable: Unreadable): Rules[] {
  const above: string[] = [];
  for (let at = folder; !existsSync(join(at, '.git')); at = dirname(at)) {
    if (at === dirname(at)) return [];
    above.unshift(dirname(at));
  }
  return above.flatMap((each) => rulesOf(each, make, unreadable));
}

/** Whether the last rule that names the path ignores it. */
function isIgnored(path: string, isFolder: boolean, rules: readonly Rules[]): boolean {
  let ignored = false;
  for (const { folder, ignore } of rules) {
    const below = relative(folder, path).split(sep).join('/');
    const verdict = ignore.test(isFolder ? `${below}/` : below);
    if (verdict.ignored) ignored = true;
    if (verdict.unignored) ignored = false;
  }
  return ignored;
}
