/** The types of every entry point, with the versions of TypeScript and of Node's types that services have. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import type Compiler from 'typescript';
import { fetched, fetchedFolder } from '../../support/fetched.js';
import { Packed, succeeds } from '../packed.js';

const TYPESCRIPT = ['5.2', '5.6', '5.9', '6.0', '7.0'];

/** What the types of the entry points for other libraries name. */
const PEERS = [
  '@nestjs/common@11',
  'reflect-metadata@0.2',
  'rxjs@7',
  'bullmq@6',
  'prom-client@15',
  '@opentelemetry/api@1',
];

const PROGRAM = `
import { once } from 'node:events';
import { oneAtATime } from 'holdfast/bullmq';
import { HoldfastModule, Lock as Locked, Once } from 'holdfast/nest';
import { runCoordinator } from 'holdfast/node-cron';
import * as opentelemetry from 'holdfast/opentelemetry';
import * as prometheus from 'holdfast/prometheus';
import { Mutex } from 'holdfast/redis-semaphore';
import Redlock4 from 'holdfast/redlock4';
import { lockUi } from 'holdfast/ui';
import {
  connect, type Lock, type LockJson, LockTimeoutError, LockManager, type LockSet,
  type LockWarning, type LockWarningCode,
} from 'holdfast';
import { checkFence, type FenceConnection, fencedTransaction, httpFence, StaleFenceError } from 'holdfast/fence';
import { expressIdempotency, fastifyIdempotency, memoryStore } from 'holdfast/idempotency';
import Redlock, {
  type Client, ExecutionError, Lock as RedlockLock, type RedlockAbortSignal, ResourceLockedError, type Settings,
} from 'holdfast/redlock';
interface Pool {
  connect(): Promise<{ sell(): Promise<number> }>;
  connect(callback: (error: Error | undefined) => void): void;
}
export async function fenced(lock: Lock, pool: Pool): Promise<number> {
  const tx: FenceConnection = { dialect: 'mysql', query: async () => [] };
  await checkFence(tx, lock).catch((error) => error instanceof StaleFenceError && error.seen);
  const middleware = httpFence({ name: ({ url }: { url?: string; headers: {} }) => url ?? '' });
  return middleware.length + await fencedTransaction(pool, lock, (client) => client.sell());
}
export function idempotent(locks: LockManager): unknown[] {
  const options = { locks, store: memoryStore(), wait: 5 };
  return [expressIdempotency(options), fastifyIdempotency(options)];
}
export async function redlocked(clients: Client[], settings: Partial<Settings>): Promise<number> {
  const redlock = new Redlock(clients, settings);
  redlock.on('error', (error) => error instanceof ResourceLockedError);
  let lock: RedlockLock = await redlock.acquire(['a'], 5_000);
  lock = await lock.extend(5_000);
  const { attempts } = await new RedlockLock(redlock, ['a'], lock.value, [], lock.expiration).release();
  const check = (signal: RedlockAbortSignal) => { if (signal.aborted) throw signal.error; };
  const n: number = await redlock.using(['a'], 5_000, { retryCount: 5 }, async (signal) => { check(signal); return 1; });
  const s: string = await redlock.using(['a'], 5_000, async (signal) => { check(signal); return ''; });
  // @ts-expect-error: a list of resources
  await redlock.acquire('a', 5_000);
  return n + s.length + ((await attempts[0])?.votesAgainst.size ?? 0);
}
export function attemptsOf(error: unknown): number {
  return error instanceof ExecutionError ? error.attempts.length : 0;
}
export async function sell(locks: LockManager): Promise<number> {
  await using lock: Lock = await locks.acquire('item:42', { ttl: 5_000, wait: 1_000 });
  const maybe: Lock | null = await locks.tryAcquire('cron', { label: 'me' });
  const freed: boolean = (await maybe?.release()) ?? false;
  lock.assertHeld();
  await lock.extend(freed ? 1_000 : undefined);
  return lock.fence + lock.remaining;
}
export async function kinds(locks: LockManager): Promise<number> {
  await using set: LockSet = await locks.acquire(['a', 'b'], { mode: 'shared', limit: 3 });
  const name: string = await locks.request('a', (lock) => lock.name);
  const maybe: string | undefined = await locks.request('a', { ifAvailable: true }, (lock) => lock?.name);
  const nested = await locks.request(['a', 'b'], { reentrant: true }, async ({ fences }) => fences['a'] ?? 0);
  const lock: Lock = await locks.adopt(JSON.parse('{}') as LockJson, { ttl: 5_000 });
  const { held, pending } = await locks.query({ startsWith: name });
  for await (const page of locks.queryPages({ count: 10 })) void page.held;
  await locks.forceRelease(maybe ?? lock.mode, { foreign: true });
  await locks.tryAcquire('a', { ttl: undefined, label: undefined, mode: undefined });
  return set.remaining + nested + held.length + (pending[0]?.position ?? 0);
}
export function codeOf(error: unknown): 'ERR_LOCK_TIMEOUT' | undefined {
  return error instanceof LockTimeoutError ? error.code : undefined;
}
export function tell(locks: LockManager, quiet: ReadonlySet<LockWarningCode>): void {
  locks.on('warning', ({ code, lock, message }) => { if (!quiet.has(code)) console.error(lock, message); });
  // @ts-expect-error: a code that does not exist
  locks.on('warning', ({ code }: LockWarning) => code === 'WARN_LOCK_NEST');
}
// @ts-expect-error: an option that does not exist
void connect('redis://127.0.0.1', { tttl: 5 });
// @ts-expect-error: with ifAvailable there may be no lock
void connect().then((locks) => locks.request('a', { ifAvailable: true }, (lock) => lock.name));
// @ts-expect-error: tryAcquire never waits
void connect().then((locks) => locks.tryAcquire('a', { wait: 5 }));

export function listen(locks: LockManager): void {
  locks.on('lost', (lock, error) => console.error(lock.name, error.reason)).once('close', () => {});
  void once(locks, 'close');
  // @ts-expect-error: an event that does not exist
  locks.on('lostt', () => {});
  // @ts-expect-error: a listener that wants another argument
  locks.off('lost', (lock: string) => lock);
  // @ts-expect-error: an event without its argument
  locks.emit('warning');
}
// @ts-expect-error: nobody but connect makes a manager
void new LockManager();
export class Shop {
  @Locked('item:\${0}') async sell(item: number): Promise<number> { return item; }
  @Once('report', { every: '1h' }) async report(): Promise<void> {}
  @Once('sum', { every: '1h', keepResult: true }) async sum(): Promise<number | undefined> { return 1; }
  // @ts-expect-error: a call that runs nothing returns nothing
  @Once('count', { every: '1h' }) async count(): Promise<number> { return 1; }
}
export function annexes(locks: LockManager, client: Client): unknown[] {
  const metrics = [opentelemetry.measureLocks(locks), prometheus.measureLocks(locks)];
  const worker = oneAtATime(locks, (job) => \`\${job.data}\`, async () => 1);
  const others = [HoldfastModule.forRoot({}), runCoordinator(locks), lockUi({ locks })];
  return [metrics, worker, others, new Mutex(client as never, 'a'), new Redlock4([client])];
}
`;

/** The files of the program for each kind of modules. */
const MODULES = {
  node16: { module: 'node16', files: ['typed.mts', 'typed.cts'] },
  nodenext: { module: 'nodenext', files: ['typed.mts', 'typed.cts'] },
  bundler: { module: 'esnext', files: ['typed.ts'] },
} as const;

type Kind = keyof typeof MODULES;

const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
  noEmit: true,
  experimentalDecorators: true,
  target: 'es2022',
  lib: ['es2022', 'esnext.disposable'],
};

/** A folder of a service with the package, what it is used with, and Node's types of a version. */
export async function service(
  packed: Packed,
  typescript: string,
  nodeTypes: number,
): Promise<string> {
  const folder = packed.project(`types-${typescript}`);
  const modules = join(folder, 'node_modules');
  mkdirSync(join(modules, 'holdfast'), { recursive: true });
  await succeeds('tar', [
    '-xzf',
    packed.main,
    '-C',
    join(modules, 'holdfast'),
    '--strip-components=1',
  ]);
  const others = join(await fetchedFolder(`@types/node@${nodeTypes}`, ...PEERS), 'node_modules');
  for (const name of readdirSync(others)) {
    if (!name.startsWith('.')) symlinkSync(join(others, name), join(modules, name));
  }
  for (const extension of ['mts', 'cts', 'ts'])
    writeFileSync(join(folder, `typed.${extension}`), PROGRAM);
  return folder;
}

/**
 * The errors in the program and in the types of holdfast. Those of other libraries have errors in some pairs of versions, and
 * to look for these takes most of a compiler's time.
 */
export async function compiled(typescript: string, folder: string, kind: Kind): Promise<string[]> {
  const { module, files } = MODULES[kind];
  const flags = { ...STRICT, module, moduleResolution: kind, types: ['node'] };
  const config = join(folder, `tsconfig.${kind}.json`);
  writeFileSync(config, JSON.stringify({ compilerOptions: flags, files }));
  if (typescript.startsWith('7')) return compiledByProgram(typescript, config);
  const ts = require(await fetched(`typescript@${typescript}`, 'typescript/lib/typescript.js'));
  return errorsOf(ts, config);
}

function errorsOf(ts: typeof Compiler, config: string): string[] {
  const { options, fileNames, errors } = ts.parseJsonConfigFileContent(
    ts.readConfigFile(config, ts.sys.readFile).config,
    ts.sys,
    dirname(config),
  );
  const program = ts.createProgram(fileNames, options);
  const ours = program
    .getSourceFiles()
    .filter(({ fileName }) => /holdfast\/dist|\/typed\./.test(fileName));
  assert.ok(ours.length > 20, 'the program uses the types of holdfast');
  const found = ours.flatMap((file) => [
    ...program.getSyntacticDiagnostics(file),
    ...program.getSemanticDiagnostics(file),
  ]);
  const host = { getCurrentDirectory: () => dirname(config), getNewLine: () => '\n' };
  const format = { ...host, getCanonicalFileName: (name: string) => name };
  return [...errors, ...program.getOptionsDiagnostics(), ...found].map((each) =>
    ts.formatDiagnostic(each, format),
  );
}

/** TypeScript 7 has no functions for programs. */
async function compiledByProgram(typescript: string, config: string): Promise<string[]> {
  const compiler = await fetched(`typescript@${typescript}`, 'typescript/bin/tsc');
  const args = [compiler, '--pretty', 'false', '--project', config];
  try {
    await promisify(execFile)(process.execPath, args, { cwd: dirname(config) });
    return [];
  } catch (error) {
    const { stdout } = error as { stdout: string };
    // Without an error of its own it has not compiled either.
    if (stdout === '') throw error;
    // The lines of one error after its first are indented.
    const errors = stdout.trim().split(/\n(?! )/);
    return errors.filter((each) => /^(typed\.|node_modules\/holdfast\/|error )/.test(each));
  }
}

/** Compiles the program with Node's types of a version, by each compiler and for each kind of modules. */
export function checkTypes(nodeTypes: number): void {
  let packed: Packed;

  before(async () => {
    packed = await Packed.start();
  });

  after(() => packed.stop());

  for (const typescript of TYPESCRIPT) {
    test(`TypeScript ${typescript}, strictly, to the last library`, async () => {
      const folder = await service(packed, typescript, nodeTypes);
      for (const kind of Object.keys(MODULES) as Kind[]) {
        assert.deepEqual(await compiled(typescript, folder, kind), [], kind);
      }
    });
  }
}
