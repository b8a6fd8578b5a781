/** What `--write` changes: in which files, and what is not certain enough. */

import { readFileSync } from 'node:fs';
import { dirname, sep } from 'node:path';
import type { FileLocks } from '../find/find.js';
import type { DropIn, PackageUse } from '../find/packages.js';
import type { Parser } from '../find/parser.js';
import { type Node, parse, type Source } from '../find/source.js';
import { editByHand } from './by-hand.js';
import { applyEdits, type Edit } from './edits.js';
import { editOf, obstacleOf } from './imports.js';
import { wholeLine } from './lines.js';
import { editManifest, majorOf, manifestOf } from './manifest.js';
import type { Change } from './write.js';

/** A file that has been read. */
export interface ReadFile {
  readonly path: string;
  readonly source: Source;
  readonly locks: FileLocks;
}

/** The import of a package, and what becomes of it. */
export interface Move {
  readonly dropIn: DropIn | undefined;
  /** Why it stays; undefined if it moves. */
  readonly obstacle: string | undefined;
}

/** The changes of a code base. */
export interface Plan {
  /** The files that change. */
  readonly changes: readonly Change[];
  readonly moves: ReadonlyMap<PackageUse, Move>;
  /** The files whose locks by hand are rewritten. */
  readonly byHand: ReadonlySet<string>;
}

/** Plans the changes. `roots` are the paths that were looked at, whole. */
export function plan(
  parser: Parser,
  files: readonly ReadFile[],
  roots: readonly string[],
  version: string,
): Plan {
  const moves = planMoves(files);
  const changes: Change[] = [];
  const byHand = new Set<string>();
  for (const file of files) {
    const { source, locks } = file;
    const edits = locks.uses.flatMap((use): Edit[] => {
      const move = moves.get(use);
      return move?.dropIn && move.obstacle === undefined ? [editOf(source, use, move.dropIn)] : [];
    });
    const pairs = editByHand(
      source,
      locks.byHand.map(({ lock }) => lock),
      locks.commands,
    );
    const text = rewritten(parser, source, [...edits, ...(pairs ?? [])], pairs !== undefined);
    if (text === undefined) continue;
    changes.push({ path: file.path, text });
    if (pairs !== undefined) byHand.add(file.path);
  }
  changes.push(...planManifests(parser, files, moves, roots, version));
  return { changes, moves, byHand };
}

/** The new text; undefined if nothing changes, or if it would be no program. */
function rewritten(
  parser: Parser,
  source: Source,
  edits: readonly Edit[],
  isByHand: boolean,
): string | undefined {
  // A text with bytes that are no UTF-8 cannot be written as it was.
  const isExact = source.isWhole && !source.text.includes('\ufffd');
  if (edits.length === 0 || !isExact) return undefined;
  const text = applyEdits(source.text, edits);
  const result = parse(parser, source.path, text);
  if (result?.isWhole !== true) return undefined;
  return isByHand ? withoutUnused(parser, source, result) : text;
}

/** Removes the scripts and imports that only the old code named. */
function withoutUnused(parser: Parser, before: Source, after: Source): string {
  const used = countsOf(before);
  const left = countsOf(after);
  const edits = after.nodes.flatMap((statement): Edit[] => {
    const name = nameDeclared(statement);
    if (name === undefined || left.get(name) !== 1 || (used.get(name) ?? 0) < 2) return [];
    return [wholeLine(after, statement)];
  });
  const text = applyEdits(after.text, edits);
  return parse(parser, after.path, text)?.isWhole === true ? text : after.text;
}

function countsOf(source: Source): Map<string, number> {
  const counts = new Map<string, number>();
  for (const node of source.nodes)
    if (node.type === 'Identifier')
      counts.set(node.name, (counts.get(node.name) ?? 0) + importShare(source, node));
  return counts;
}

/** `import { a }` has the name twice in the tree, for the module and for the file. */
function importShare(source: Source, node: Parameters<Source['parent']>[0]): number {
  const parent = source.parent(node);
  return parent.type === 'ImportSpecifier' && parent.imported === node && parent.local !== node
    ? 0
    : 1;
}

/** The one name that a statement declares, if it has no other effect. */
function nameDeclared(statement: Node): string | undefined {
  if (statement.type === 'ImportDeclaration' && statement.specifiers.length === 1)
    return statement.specifiers[0]?.local.name;
  if (statement.type !== 'VariableDeclaration' || statement.declarations.length !== 1)
    return undefined;
  const [declarator] = statement.declarations;
  const isText =
    declarator?.init?.type === 'Literal' || declarator?.init?.type === 'TemplateLiteral';
  return isText && declarator?.id.type === 'Identifier' ? declarator.id.name : undefined;
}

/** A package moves in all files of its manifest, or in none: they may hand its objects to each other. */
function planMoves(files: readonly ReadFile[]): Map<PackageUse, Move> {
  const groups = new Map<string, { use: PackageUse; move: Move }[]>();
  for (const { path, source, locks } of files) {
    for (const use of locks.uses) {
      const manifest = manifestOf(path, use.package.name);
      const major = manifest === undefined ? undefined : majorOf(manifest, use.package.name);
      const dropIn = use.package.dropIn?.(major);
      const obstacle =
        dropIn === undefined ? noDropIn(use, major) : obstacleOf(source, use, dropIn);
      const id = `${manifest}\0${use.package.name}`;
      groups.set(id, [...(groups.get(id) ?? []), { use, move: { dropIn, obstacle } }]);
    }
  }
  return new Map(
    [...groups.values()].flatMap((group) => {
      const first = group.find(({ move }) => move.obstacle !== undefined)?.move.obstacle;
      return group.map(({ use, move }): [PackageUse, Move] => [
        use,
        { ...move, obstacle: move.obstacle ?? (first && `another file stays: ${first}`) },
      ]);
    }),
  );
}

function noDropIn(use: PackageUse, major: number | undefined): string {
  const { name, dropIn } = use.package;
  if (dropIn === undefined) return `holdfast has no drop-in for ${name}`;
  return major === undefined
    ? `package.json does not tell the version of ${name}`
    : `holdfast has no drop-in for ${name} ${major}`;
}

function planManifests(
  parser: Parser,
  files: readonly ReadFile[],
  moves: Plan['moves'],
  roots: readonly string[],
  version: string,
): Change[] {
  const names = new Map<string, Set<string>>();
  for (const { path, locks } of files) {
    for (const use of locks.uses) {
      const move = moves.get(use);
      const manifest = manifestOf(path, use.package.name);
      if (move?.dropIn === undefined || move.obstacle !== undefined) continue;
      if (manifest === undefined || !isWithin(dirname(manifest), roots)) continue;
      names.set(manifest, (names.get(manifest) ?? new Set<string>()).add(use.package.name));
    }
  }
  return [...names].flatMap(([path, moved]): Change[] => {
    const text = readFileSync(path, 'utf8');
    const edits = editManifest(parser, text, [...moved], version);
    return edits.length === 0 ? [] : [{ path, text: applyEdits(text, edits) }];
  });
}

/** Whether a folder was looked at, whole: elsewhere a file that was not read may still import the package. */
function isWithin(folder: string, roots: readonly string[]): boolean {
  return roots.some((root) => folder === root || folder.startsWith(root + sep));
}
