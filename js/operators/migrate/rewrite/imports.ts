/** Import lines: from a package to the drop-in that has its API. */

import type { DropIn, PackageUse } from '../find/packages.js';
import { nameOf, type Source } from '../find/source.js';
import type { Edit } from './edits.js';

/** What the constructors of the drop-ins take, by the package. */
const OPTIONS: Readonly<Record<string, ReadonlySet<string>>> = {
  redlock: new Set([
    'driftFactor',
    'retryCount',
    'retryDelay',
    'retryJitter',
    'automaticExtensionThreshold',
  ]),
  '@sesamecare-oss/redlock': new Set([
    'driftFactor',
    'retryCount',
    'retryDelay',
    'retryJitter',
    'automaticExtensionThreshold',
    'db',
  ]),
  'redis-semaphore': new Set([
    'lockTimeout',
    'acquireTimeout',
    'acquireAttemptsLimit',
    'retryInterval',
    'refreshInterval',
    'identifier',
    'acquiredExternally',
    'onLockLost',
    'externallyAcquiredIdentifier',
  ]),
};

/** What the drop-ins refuse of clients. */
const REFUSED = /\b(natMap|checkServerIdentity|createClientPool|Connector)\b/;

/** Why the import of a package cannot be changed for sure; undefined if it can. */
export function obstacleOf(source: Source, use: PackageUse, dropIn: DropIn): string | undefined {
  const missing = (use.imported ?? []).find((name) => name !== '*' && !dropIn.names.has(name));
  if (missing !== undefined) return `${dropIn.entry} has no ${missing}`;
  if (countsPermits(source, use))
    return 'stop all old instances first: a Semaphore of theirs does not count the permits of the new one';
  const refused = REFUSED.exec(source.text)?.[0];
  if (refused !== undefined) return `${dropIn.entry} refuses clients with ${refused}`;
  if (
    use.package.name === '@sesamecare-oss/redlock' &&
    /\b(db|database)\s*:|\bselect\(/.test(source.text)
  )
    return 'the lock is in the database 0 whatever the client says';
  return optionOf(source, use, dropIn);
}

/** Whether a file takes semaphores, which old and new instances do not share. */
function countsPermits(source: Source, use: PackageUse): boolean {
  if (use.package.name !== 'redis-semaphore' || use.onlyTypes) return false;
  return source.nodes.some((node) => /^(Multi)?Semaphore$/.test(nameOf(node)));
}

function optionOf(source: Source, use: PackageUse, dropIn: DropIn): string | undefined {
  const known = OPTIONS[use.package.name];
  for (const node of source.nodes) {
    if (node.type !== 'NewExpression') continue;
    const constructed = source.textOf(node.callee);
    const isRedlock = /^(\w+\.)?Redlock(\.default)?$/i.test(constructed);
    if (isRedlock && node.arguments.length > 2) return `${dropIn.entry} takes no scripts`;
    if (!isRedlock && !/^(Redlock)?(Mutex|Semaphore|MultiSemaphore)$/.test(constructed)) continue;
    const last = node.arguments.at(-1);
    const options = last === undefined ? undefined : source.resolve(last);
    if (options?.type !== 'ObjectExpression') continue;
    for (const property of options.properties) {
      if (property.type !== 'Property') continue;
      const name = nameOf(property.key);
      if (known?.has(name) === false) return `${dropIn.entry} takes no option ${name}`;
    }
  }
  return undefined;
}

/** The edit of one import, require or mock. */
export function editOf(source: Source, { specifier }: PackageUse, { entry }: DropIn): Edit {
  const quote = source.text[specifier.start] ?? "'";
  return { start: specifier.start, end: specifier.end, text: `${quote}${entry}${quote}` };
}
