/** Rewrites the locks that a file takes by hand: all of them, or none. */

import type { Commands, HandLock } from '../find/key-command.js';
import { sameKey } from '../find/keys.js';
import { paramsOf, type Source } from '../find/source.js';
import { apartOf } from './apart.js';
import type { Edit } from './edits.js';
import { changesDatabase, importOf, type Site } from './manager.js';
import { editPair, pairOf } from './pairs.js';

/** A lock that can be rewritten for sure. */
interface Rewritten {
  readonly site: Site;
  readonly edits: readonly Edit[];
}

/** The edits that rewrite all locks of a file; undefined if one of them is of another form. */
export function editByHand(
  source: Source,
  locks: readonly HandLock[],
  commands: Commands,
): Edit[] | undefined {
  if (locks.length === 0 || !isFree(source, 'locks') || !isFree(source, 'connectLazily'))
    return undefined;
  if (changesDatabase(source)) return undefined;
  const found = locks.map((lock) =>
    isAlone(source, lock, commands) ? rewrite(source, lock) : undefined,
  );
  const all = found.filter((each) => each !== undefined);
  if (all.length < found.length) return undefined;
  const sites = new Map(all.map(({ site }) => [site.at, site]));
  const names = new Set(all.map(({ site }) => site.name));
  // One name for one manager.
  if (names.has('locks') && sites.size > 1) return undefined;
  const isTyped = [...sites.values()].some((each) => each.isTyped);
  return [
    importOf(source, isTyped),
    ...[...sites.values()].flatMap(({ edits }) => edits),
    ...all.flatMap(({ edits }) => edits),
  ];
}

function rewrite(source: Source, lock: HandLock): Rewritten | undefined {
  const pair = isFree(source, 'lock') ? pairOf(source, lock) : undefined;
  const found =
    pair === undefined ? apartOf(source, lock) : { site: pair.site, edits: editPair(source, pair) };
  // Objects of a class whose key is a field may be as many as its locks: each would open a connection.
  return found?.site.name === 'this.locks' && !isKeyGiven(source, lock) ? undefined : found;
}

/** Whether a key has something of the parameters of the function that takes the lock. */
function isKeyGiven(source: Source, { acquire }: HandLock): boolean {
  const key = acquire?.key;
  if (key === undefined) return false;
  const names = new Set(source.functionsOf(key).flatMap((each) => [...paramsOf(each)]));
  return [key, source.resolve(key)]
    .flatMap((each) => [each, ...source.within(each)])
    .some((each) => each.type === 'Identifier' && names.has(each.name));
}

/** Whether the file does nothing else with the key, such as asking for its owner, or extending the lease. */
function isAlone(source: Source, { acquire, releases }: HandLock, { all }: Commands): boolean {
  const own = new Set([acquire, ...releases]);
  return !all.some(
    (each) =>
      !own.has(each) && (each.script === 'extend' || sameKey(source, each.key, acquire?.key)),
  );
}

/** Whether no variable of the file has a name: members of objects may. */
function isFree(source: Source, name: string): boolean {
  return !source.nodes.some((node) => {
    if (node.type !== 'Identifier' || node.name !== name) return false;
    const parent = source.parent(node);
    if (parent.type === 'MemberExpression') return parent.object === node || parent.computed;
    if (parent.type === 'Property' && parent.shorthand) return true;
    const isMember =
      parent.type === 'MethodDefinition' ||
      parent.type === 'PropertyDefinition' ||
      parent.type === 'Property';
    return !isMember || parent.key !== node || parent.computed;
  });
}
