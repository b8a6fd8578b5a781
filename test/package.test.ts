/** The package as npm would publish it for this platform, installed into an empty folder. */

import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from './support/child.js';
import { RedisServer } from './support/server.js';

let folder: string;
let tarball: string;
let server: RedisServer;

function command(program: string, args: string[], cwd: string): SpawnSyncReturns<string> {
  return spawnSync(program, args, { cwd, encoding: 'utf8', env: { ...process.env, CI: '1' } });
}

function succeeds(program: string, args: string[], cwd = ROOT): string {
  const ended = command(program, args, cwd);
  assert.equal(ended.status, 0, `${program} ${args.join(' ')}\n${ended.stdout}${ended.stderr}`);
  return ended.stdout;
}

/** Node's own types, which a service in TypeScript has: AbortSignal and EventEmitter are theirs. */
const TYPES = join(ROOT, 'node_modules', '@types');

const bin = (name: string) => join(ROOT, 'node_modules', '.bin', name);

before(async () => {
  server = await RedisServer.start();
  folder = mkdtempSync(join(tmpdir(), 'holdfast-package-'));
  const packed = succeeds('npm', [
    'pack',
    '--json',
    '--ignore-scripts',
    '--pack-destination',
    folder,
  ]);
  tarball = join(folder, JSON.parse(packed)[0].filename);
  writeFileSync(join(folder, 'package.json'), '{"private":true}');
  succeeds('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', tarball], folder);
});

after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('publint finds nothing', () => {
  succeeds(bin('publint'), ['--strict', tarball]);
});

test('arethetypeswrong finds nothing', () => {
  succeeds(bin('attw'), [tarball, '--no-emoji', '--format', 'ascii']);
});

test('the package has one dependency, no install scripts and no sources', () => {
  const listed = succeeds('tar', ['-tzf', tarball]).trim().split('\n');
  for (const file of listed) {
    assert.match(file, /^package\/(dist\/|native\/|LICENSE$|README\.md$|package\.json$)/);
  }
  const manifest = JSON.parse(succeeds('tar', ['-xzOf', tarball, 'package/package.json']));
  // The parser of the command line, which has none of its own. The library does not load it.
  assert.deepEqual(Object.keys(manifest.dependencies), ['commander']);
  assert.equal(manifest.scripts.install ?? manifest.scripts.postinstall, undefined);
});

const PROGRAM = `
const locks = await connect(process.argv[2]);
const lock = await locks.acquire('packed');
console.log(await lock.release());
await locks.close();
`;

test('it works by import and by require', () => {
  writeFileSync(join(folder, 'a.mjs'), `import { connect } from 'holdfast';${PROGRAM}`);
  const cjs = `const { connect } = require('holdfast');(async () => {${PROGRAM}})();`;
  writeFileSync(join(folder, 'b.cjs'), cjs);
  for (const file of ['a.mjs', 'b.cjs']) {
    assert.equal(succeeds(process.execPath, [file, server.url], folder), 'true\n');
  }
});

test('its command line is installed, runs, and finds its parser', () => {
  const installed = join(folder, 'node_modules', '.bin', 'holdfast');
  const words = ['run', 'packed', '--url', server.url, '--', 'echo', 'ran'];
  assert.equal(succeeds(installed, words, folder), 'ran\n');
  assert.match(succeeds(installed, ['--version'], folder), /^\d+\.\d+\.\d+\n$/);
});

test('the library works without that dependency', () => {
  const commander = join(folder, 'node_modules', 'commander');
  rmSync(commander, { recursive: true });
  const said = succeeds(process.execPath, ['-p', "typeof require('holdfast').connect"], folder);
  assert.equal(said, 'function\n');
});

const TYPED = `
import {
  connect, type Lock, type LockJson, LockTimeoutError, type LockManager, type LockSet,
} from 'holdfast';
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
  await locks.forceRelease(maybe ?? lock.mode, { force: 'foreign' });
  return set.remaining + nested + held.length + (pending[0]?.position ?? 0);
}
export function codeOf(error: unknown): 'ERR_LOCK_TIMEOUT' | undefined {
  return error instanceof LockTimeoutError ? error.code : undefined;
}
// @ts-expect-error: an option that does not exist
void connect('redis://127.0.0.1', { tttl: 5 });
// @ts-expect-error: with ifAvailable there may be no lock
void connect().then((locks) => locks.request('a', { ifAvailable: true }, (lock) => lock.name));
// @ts-expect-error: tryAcquire never waits
void connect().then((locks) => locks.tryAcquire('a', { wait: 5 }));
`;

for (const [module, resolution, file] of [
  ['nodenext', 'nodenext', 'typed.mts'],
  ['nodenext', 'nodenext', 'typed.cts'],
  ['esnext', 'bundler', 'typed.ts'],
] as const) {
  test(`its types are right for ${file} with ${resolution}, checked strictly to the last library`, () => {
    const project = join(folder, file.replace('.', '-'));
    mkdirSync(project, { recursive: true });
    writeFileSync(join(project, file), TYPED);
    const flags = ['--noEmit', '--strict', '--skipLibCheck', 'false', '--target', 'es2022'];
    const rest = ['--lib', 'es2022', '--typeRoots', TYPES, '--types', 'node'];
    const kind = ['--module', module, '--moduleResolution', resolution];
    succeeds(bin('tsc'), [...flags, ...rest, ...kind, file], project);
  });
}

test('without its addon it says which platform it has none for, and what to do', () => {
  const source = `require('node:fs').rmSync(${JSON.stringify(join(folder, 'node_modules', 'holdfast', 'native'))}, { recursive: true });
    try { require('holdfast') } catch (error) { console.log(error.code, error.message) }`;
  const said = succeeds(process.execPath, ['-e', source], folder);
  assert.match(said, /^ERR_LOCK_NATIVE_LOAD holdfast has no native addon for \w+-\w+/);
  assert.match(said, new RegExp(`Node ${process.version}`));
});
