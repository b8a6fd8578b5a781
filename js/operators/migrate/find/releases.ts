/** Which releases free a lock. */

import type { KeyCommand } from './key-command.js';
import { sameKey } from './keys.js';
import { contains, type Node, type Source } from './source.js';
import { saysLock, wordsOf } from './words.js';

/** The releases of a lock: those of the same function, if it has any. */
export function releasesOf(
  source: Source,
  acquire: KeyCommand,
  releases: readonly KeyCommand[],
): readonly KeyCommand[] {
  const own = releases.filter((release) => belongs(source, acquire, release));
  const here = source.functionOf(acquire.call);
  const inside = own.filter(({ call }) => here !== undefined && contains(here, call));
  return inside.length > 0 ? inside : own;
}

/** Whether a release frees what a command takes. */
function belongs(source: Source, acquire: KeyCommand, release: KeyCommand): boolean {
  if (sameKey(source, acquire.key, release.key)) return true;
  if (release.script !== 'release' && !speaksOfRelease(source, release)) return false;
  if (source.classOf(acquire.call) !== source.classOf(release.call)) return false;
  if (release.verb !== 'del' || release.key === undefined) return true;
  if (saysLock(source.textOf(release.key))) return true;
  return [acquire, release].every(({ call }) => saysLock(namesAround(source, call)));
}

export function speaksOfRelease(source: Source, { call }: KeyCommand): boolean {
  return wordsOf(namesAround(source, call)).some((word) =>
    /^(release|unlock|free|relinquish)/.test(word),
  );
}

/** The names of the functions around a node, also of what they are methods of: `Mutex.prototype.take = function () {}`. */
export function namesAround(source: Source, node: Node): string {
  const names = source.functionsOf(node).map((each) => {
    const parent = source.parent(each);
    return parent.type === 'AssignmentExpression'
      ? source.textOf(parent.left)
      : source.nameOfFunction(each);
  });
  return names.join(' ');
}
