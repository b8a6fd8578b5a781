/** `package.json`: the version of a package that the code is written for, and the change to holdfast. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Parser } from '../find/parser.js';
import { type Node, nameOf } from '../find/source.js';
import type { Edit } from './edits.js';

const GROUPS = ['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'];

/** The nearest `package.json` above a file that asks for a package; undefined if there is none. */
export function manifestOf(file: string, name: string): string | undefined {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const path = join(folder, 'package.json');
    if (existsSync(path) && rangeOf(path, name) !== undefined) return path;
    if (folder === dirname(folder)) return undefined;
  }
}

/** The major version that a manifest asks for; undefined if it does not tell one. */
export function majorOf(manifest: string, name: string): number | undefined {
  const major = /^[\^~=v>\s]*(\d+)(?:\.|$)/.exec(rangeOf(manifest, name) ?? '')?.[1];
  return major === undefined ? undefined : Number(major);
}

function rangeOf(manifest: string, name: string): string | undefined {
  const groups = read(manifest);
  return GROUPS.map((group) => groups[group]?.[name]).find((each) => each !== undefined);
}

function read(path: string): Record<string, Record<string, string> | undefined> {
  try {
    return JSON.parse(readFileSync(path, 'utf8').replace(/^\ufeff/, '')) as Record<
      string,
      Record<string, string>
    >;
  } catch {
    return {};
  }
}

/** The edits that put holdfast in the place of packages, in the group of each. */
export function editManifest(
  parser: Parser,
  text: string,
  names: readonly string[],
  version: string,
): Edit[] {
  const { program, errors } = parser.parseSync('package.json.js', `(${text})`);
  const [statement] = program.body;
  if (errors.length > 0 || statement?.type !== 'ExpressionStatement') return [];
  const groups = entriesOf(statement.expression).filter(([name]) => GROUPS.includes(name));
  let hasHoldfast = groups.some(([, group]) =>
    entriesOf(group).some(([name]) => name === 'holdfast'),
  );
  return groups.flatMap(([, group]) => {
    const entries = entriesOf(group);
    return entries.flatMap(([name, , property], i): Edit[] => {
      if (!names.includes(name) && !names.includes(name.replace(/^@types\//, ''))) return [];
      // The text begins with a parenthesis that the file does not have.
      const [start, end] = [property.start - 1, property.end - 1];
      if (!hasHoldfast && names.includes(name)) {
        hasHoldfast = true;
        return [{ start, end, text: `"holdfast": "^${version}"` }];
      }
      const [before, after] = [entries[i - 1]?.[2], entries[i + 1]?.[2]];
      if (after !== undefined) return [{ start, end: after.start - 1, text: '' }];
      if (before !== undefined) return [{ start: before.end - 1, end, text: '' }];
      return [{ start, end, text: '' }];
    });
  });
}

function entriesOf(node: Node): [name: string, value: Node, property: Node][] {
  let at = node;
  while (at.type === 'ParenthesizedExpression') at = at.expression;
  if (at.type !== 'ObjectExpression') return [];
  return at.properties.flatMap((each) =>
    each.type === 'Property' ? [[nameOf(each.key), each.value, each] as [string, Node, Node]] : [],
  );
}
