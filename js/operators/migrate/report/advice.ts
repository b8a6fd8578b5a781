/** The advice for a lock: a sentence, and the code to paste. */

import type { HandLock } from '../find/key-command.js';
import type { FoundLock } from '../find/lock.js';
import type { PackageUse } from '../find/packages.js';
import { contains, type Source } from '../find/source.js';
import { saysTake } from '../find/words.js';
import type { Move } from '../rewrite/plan.js';
import { ttlOption } from '../rewrite/ttl.js';

type Advice = Pick<FoundLock, 'advice' | 'code' | 'rewritten'>;

/** The advice for the import of a package. */
export function adviceOnPackage({ package: { name } }: PackageUse, move: Move | undefined): Advice {
  const { dropIn, obstacle } = move ?? {};
  if (dropIn !== undefined && obstacle === undefined)
    return { advice: `import ${dropIn.entry} in its place`, rewritten: true };
  const reason = obstacle === undefined ? '' : `: ${obstacle}`;
  return { advice: `see docs/migration.md for ${name}${reason}`, rewritten: false };
}

/** The advice for a lock by hand. */
export function adviceByHand(source: Source, lock: HandLock, rewritten: boolean): Advice {
  if (rewritten) return { advice: 'tryAcquire of holdfast, on the same key', rewritten };
  return {
    advice:
      "with const locks = connectLazily(url, { prefix: '' }), or the client's keyPrefix, it is",
    code: codeFor(source, lock),
    rewritten,
  };
}

/** The code that replaces a lock, by its form, with the expiry of the old code; `…` is for people to fill in. */
function codeFor(source: Source, { acquire, releases, expiry }: HandLock): string {
  const key = acquire?.key === undefined ? 'key' : source.textOf(acquire.key);
  const length =
    expiry === undefined || expiry === 'unknown' ? 'ttl: …' : ttlOption(source, expiry);
  // Without an expiry in the old code the default of holdfast is as good as any.
  const ttl = expiry === undefined ? [] : [length];
  const options = ttl.length === 0 ? '' : `, { ${ttl} }`;
  const apart = `const lock = await locks.tryAcquire(${key}${options}) … await lock?.release()`;
  const here = acquire === undefined ? undefined : source.functionOf(acquire.call);
  if (here === undefined) return apart;
  if (releases.some(({ call }) => contains(here, call)))
    return `await locks.request(${key}, { ${[...ttl, 'wait: 0'].join(', ')} }, async () => { … })`;
  // A function that takes the lock for others may be in another file than its release.
  if (releases.length > 0 || saysTake(source.nameOfFunction(here))) return apart;
  return `await locks.tryAcquire(${key}, { ${length}, renew: false, leaveToExpire: true })`;
}
