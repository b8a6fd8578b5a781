/** The packages that take locks in Redis, and what a file does with them. */

import { skippedRelease } from './cleanup.js';
import type { Fault } from './lock.js';
import {
  bare,
  type CallExpression,
  calledName,
  type Node,
  nameOf,
  receiverOf,
  type Source,
} from './source.js';

/** A package that takes locks. */
export interface LockPackage {
  readonly name: string;
  /** Known to get no releases, or to call itself superseded: a guess is no reason to move. */
  readonly superseded?: true;
  /** The drop-in, by the package's major version; none if its code has to change. */
  readonly dropIn?: (major: number | undefined) => DropIn | undefined;
}

/** An entry of holdfast with the API of a package. */
export interface DropIn {
  readonly entry: string;
  /** The names that it exports. */
  readonly names: ReadonlySet<string>;
}

const names = (text: string): ReadonlySet<string> => new Set(text.split(' '));

const REDLOCK: DropIn = {
  entry: 'holdfast/redlock',
  names: names(
    'default Redlock Lock ExecutionError ResourceLockedError Settings RedlockAbortSignal Client ClientExecutionResult ExecutionResult ExecutionStats',
  ),
};
const REDLOCK4: DropIn = {
  entry: 'holdfast/redlock4',
  names: names('default Redlock Lock LockError Options'),
};
const REDIS_SEMAPHORE: DropIn = {
  entry: 'holdfast/redis-semaphore',
  names: names(
    'Mutex Semaphore MultiSemaphore RedlockMutex Lock LostLockError TimeoutError defaultTimeoutOptions Client LockLostCallback LockOptions TimeoutOptions',
  ),
};

/** The major versions that a drop-in stands for. */
const redlockOf = (major: number | undefined) =>
  major === 5 ? REDLOCK : major === 4 ? REDLOCK4 : undefined;

export const PACKAGES: readonly LockPackage[] = [
  { name: 'redlock', superseded: true, dropIn: redlockOf },
  { name: '@sesamecare-oss/redlock', superseded: true, dropIn: () => REDLOCK },
  {
    name: 'redis-semaphore',
    dropIn: (major) => (major === 5 ? REDIS_SEMAPHORE : undefined),
  },
  { name: 'redlock-universal' },
  { name: 'redlock-temp-fix' },
  { name: 'redlock2' },
  { name: 'node-redlock' },
  { name: '@hoangducnhuan/redlock' },
  { name: '@anchan828/nest-redlock' },
  { name: '@blastz/nest-redlock' },
  { name: 'nestjs-redlock-universal' },
  { name: 'nestjs-simple-redis-lock' },
  { name: '@huangang/nestjs-simple-redis-lock' },
  { name: '@nestjs-redis/lock' },
  { name: '@redis-kit/lock' },
  { name: '@microfleet/ioredis-lock' },
  { name: 'ioredis-lock' },
  { name: 'murlock' },
  { name: 'simple-redis-mutex' },
  { name: 'async-redis-lock' },
  { name: 'redis-lock' },
  { name: 'redislock' },
  { name: 'node-redis-lock' },
  { name: 'redis-exp-lock' },
  { name: 'redlock-node' },
  { name: 'ac-redislock' },
  { name: 'redis-promise-lock' },
  { name: 'node-redis-warlock' },
  { name: '@upstash/lock' },
  { name: 'bull-redlock' },
  { name: 'redfour' },
  { name: 'ioredfour' },
  { name: 'redis-leader' },
  { name: 'safe-redis-leader' },
  { name: 'ts-safe-redis-leader' },
  { name: 'node-redisson' },
];

const BY_NAME = new Map(PACKAGES.map((each) => [each.name, each]));

/** A place where a file names a package. */
export interface PackageUse {
  readonly package: LockPackage;
  /** The string that names it. */
  readonly specifier: Node & { readonly value: unknown };
  /** The statement or call around the string. */
  readonly node: Node;
  readonly form: 'import' | 'require' | 'export' | 'mock';
  /** The names that it takes; undefined if it takes the whole module. */
  readonly imported: readonly string[] | undefined;
  /** Only types, which are gone at run time. */
  readonly onlyTypes: boolean;
}

/** Finds the imports of lock packages, and mocks of them. */
export function findPackages(source: Source): PackageUse[] {
  return source.nodes.flatMap((node) => {
    if (node.type !== 'Literal' || typeof node.value !== 'string') return [];
    const found = BY_NAME.get(node.value);
    const use = found === undefined ? undefined : useOf(source, node, found);
    return use === undefined ? [] : [use];
  });
}

function useOf(
  source: Source,
  specifier: PackageUse['specifier'],
  found: LockPackage,
): PackageUse | undefined {
  const node = source.parent(specifier);
  const use = { package: found, specifier, onlyTypes: false };
  if (node.type === 'ImportDeclaration') {
    const imported = node.specifiers.map((each) =>
      each.type === 'ImportSpecifier'
        ? nameOf(each.imported)
        : each.type === 'ImportDefaultSpecifier'
          ? 'default'
          : '*',
    );
    const types = node.specifiers.map(
      (each) => each.type === 'ImportSpecifier' && each.importKind === 'type',
    );
    const onlyTypes =
      node.importKind === 'type' || (types.length > 0 && types.every((each) => each));
    return { ...use, node, form: 'import', imported, onlyTypes };
  }
  if (node.type === 'ExportNamedDeclaration' || node.type === 'ExportAllDeclaration') {
    const imported =
      node.type === 'ExportAllDeclaration'
        ? ['*']
        : node.specifiers.map((each) => nameOf(each.local));
    return { ...use, node, form: 'export', imported, onlyTypes: node.exportKind === 'type' };
  }
  if (node.type === 'TSExternalModuleReference')
    return { ...use, node, form: 'require', imported: undefined };
  if (node.type === 'ImportExpression')
    return { ...use, node, form: 'require', imported: undefined };
  if (node.type !== 'CallExpression' || node.arguments[0] !== specifier) return undefined;
  const called = source.textOf(node.callee);
  if (called === 'require')
    return { ...use, node, form: 'require', imported: required(source, node) };
  if (/^(jest|vi|vitest|mock|td|sinon)\.\w+$/.test(called))
    return { ...use, node, form: 'mock', imported: undefined };
  return undefined;
}

/** The names that `require` is taken apart to. */
function required(source: Source, call: CallExpression): string[] | undefined {
  const parent = source.parent(call);
  if (parent.type === 'MemberExpression') return [nameOf(parent.property)];
  if (parent.type !== 'VariableDeclarator' || parent.id.type !== 'ObjectPattern') return undefined;
  return parent.id.properties.map((each) => (each.type === 'Property' ? nameOf(each.key) : '*'));
}

const TAKES = /^(acquire|lock|tryAcquire|acquireWithin|createLock)$/;
const FREES = /^(release|unlock)$/;

/** What is wrong with the use of packages in a file. */
export function judgePackages(source: Source, uses: readonly PackageUse[]): Fault[] {
  const superseded = uses
    .filter((use) => use.package.superseded)
    .map(({ node }): Fault => ({ rule: 'superseded-package', node }));
  return [...superseded, ...judgeServers(source), ...judgeReleases(source)];
}

function judgeServers(source: Source): Fault[] {
  return source.nodes.flatMap((node): Fault[] => {
    if (node.type !== 'NewExpression' || !/^Redlock(\.default)?$/i.test(source.textOf(node.callee)))
      return [];
    const [clients] = node.arguments;
    const list = clients === undefined ? undefined : source.resolve(clients);
    if (
      list?.type !== 'ArrayExpression' ||
      list.elements.length !== 1 ||
      list.elements[0]?.type === 'SpreadElement'
    )
      return [];
    return [{ rule: 'redlock-on-one-server', node }];
  });
}

/** `const lock = await redlock.acquire(…)`, work, `lock.release()` without a finally block. */
function judgeReleases(source: Source): Fault[] {
  return source.calls().flatMap((take): Fault[] => {
    if (!TAKES.test(calledName(take))) return [];
    const here = source.functionOf(take);
    const parent = source.parent(take);
    if (here === undefined || parent.type !== 'AwaitExpression') return [];
    const holder = nameOfHold(source, parent) ?? textOf(source, receiverOf(take));
    const frees = source.callsWithin(here).filter((call) => {
      if (!FREES.test(calledName(call))) return false;
      const [first] = call.arguments;
      return [receiverOf(call), first].some(
        (each) => each !== undefined && textOf(source, each) === holder,
      );
    });
    const node = skippedRelease(source, here, take, frees);
    return node === undefined ? [] : [{ rule: 'release-not-in-finally', node }];
  });
}

function nameOfHold(source: Source, awaited: Node): string | undefined {
  const parent = source.parent(awaited);
  if (parent.type === 'VariableDeclarator') return source.textOf(parent.id);
  if (parent.type === 'AssignmentExpression') return source.textOf(parent.left);
  return undefined;
}

function textOf(source: Source, node: Node | undefined): string {
  return node === undefined ? '' : source.textOf(bare(node));
}
