/** An addon that cannot be loaded: what the error says for each platform and cause. */

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { removeFolder } from '../support/folders.js';

/** What the loader meets. `thrown`: the messages of the errors of the addon's own loader, each the cause of the one before. */
interface Scene {
  readonly platform: string;
  readonly arch?: string;
  /** The report of the process, which says which version of glibc there is; none of some runtimes. */
  readonly report?: object | undefined;
  readonly thrown?: readonly string[];
  /** The source of the module in place of the addon's loader. */
  readonly source?: string;
  /** The packages beside this one. */
  readonly installed?: readonly string[];
}

const LOADER = 'Cannot find native binding. npm has a bug related to optional dependencies';
const GLIBC = reportOf({ glibcVersionRuntime: '2.36' });
const REFUSED = {
  getReport: () => {
    throw new Error('not allowed');
  },
};
const missing = (name: string) => `Cannot find module '@holdfast/addon-${name}'`;

let folder: string;
let copy: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'addon-'));
  copy = join(folder, 'node_modules', 'holdfast');
  mkdirSync(join(copy, 'native'), { recursive: true });
  const built = dirname(require.resolve('holdfast'));
  for (const part of ['index.js', 'shared'])
    cpSync(join(built, part), join(copy, 'dist', part), { recursive: true });
  writeFileSync(join(copy, 'package.json'), '{ "name": "holdfast", "version": "9.8.7" }');
});

afterEach(() => removeFolder(folder));

/** The error with which a fresh copy of the package fails to load. */
function failure(scene: Scene): Error {
  const { platform, arch = 'x64', thrown = [LOADER], installed = [] } = scene;
  const { source = sourceOf(thrown) } = scene;
  writeFileSync(join(copy, 'native', 'binding.js'), source);
  const beside = join(folder, 'node_modules', '@holdfast');
  rmSync(beside, { recursive: true, force: true });
  for (const name of installed) mkdirSync(join(beside, name), { recursive: true });
  const faked = { platform, arch, report: 'report' in scene ? scene.report : GLIBC };
  const own = Object.keys(faked).map((key) => [key, Object.getOwnPropertyDescriptor(process, key)]);
  const restore = () => {
    for (const [key, descriptor] of own)
      Object.defineProperty(process, key as string, descriptor as PropertyDescriptor);
  };
  for (const [key, value] of Object.entries(faked))
    Object.defineProperty(process, key, { value, configurable: true });
  for (const file of Object.keys(require.cache))
    if (file.includes(folder)) delete require.cache[file];
  try {
    require(join(copy, 'dist', 'index.js'));
  } catch (error) {
    return error as Error;
  } finally {
    restore();
  }
  return assert.fail('it was loaded');
}

function reportOf(header: object): object {
  return { getReport: () => ({ header }) };
}

/** A loader that fails with these errors. */
function sourceOf(messages: readonly string[]): string {
  const chain = messages.reduceRight(
    (cause, message) => `new Error(${JSON.stringify(message)}, { cause: ${cause} })`,
    'undefined',
  );
  return `throw ${chain}`;
}

for (const [given, system, name] of [
  [{ platform: 'linux' }, 'linux-x64 (glibc 2.36)', 'linux-x64-gnu'],
  [{ platform: 'linux', report: reportOf({}) }, 'linux-x64 (musl)', 'linux-x64-musl'],
  [{ platform: 'linux', report: REFUSED }, 'linux-x64 (libc unknown)', 'linux-x64-gnu'],
  [{ platform: 'darwin', arch: 'arm64' }, 'darwin-arm64', 'darwin-arm64'],
  [{ platform: 'win32' }, 'win32-x64', 'win32-x64-msvc'],
] as const) {
  test(`${system}: the error names the system and the package that is missing`, () => {
    const thrown = [LOADER, "Cannot find module './holdfast.node'", missing(name)];
    const { message } = failure({ ...given, thrown });
    const begin = `holdfast cannot load its addon for ${system}, Node ${process.version}: ${missing(name)}. `;
    assert.ok(message.startsWith(begin), message);
    const cause = `This platform needs @holdfast/addon-${name}, which is missing: optional dependencies were left out`;
    assert.ok(message.includes(cause), message);
    assert.ok(
      message.includes(`npm install --save-optional @holdfast/addon-${name}@9.8.7. `),
      message,
    );
    assert.match(message, /The addon of each platform is a separate package/);
  });
}

test('without a report of the process the C library counts as musl', () => {
  const { message } = failure({ platform: 'linux', report: undefined });
  assert.match(message, /linux-x64 \(musl\)/);
});

test('addons of other platforms tell where the folder comes from', () => {
  for (const names of [['addon-darwin-arm64'], ['addon-darwin-arm64', 'addon-win32-x64-msvc']]) {
    const { message } = failure({ platform: 'linux', installed: [...names, 'my-addon-'] });
    const found = names.map((name) => `@holdfast/${name}`).join(', ');
    const cause = `which is missing: this node_modules has ${found}, and was installed on that platform.`;
    assert.ok(message.includes(cause), message);
    assert.doesNotMatch(message, /were left out/);
  }
});

test('an addon that is there, and that Node does not find, is not to be installed', () => {
  const installed = ['addon-linux-x64-gnu'];
  const { message } = failure({ platform: 'linux', installed });
  assert.doesNotMatch(message, /This platform needs/);
  assert.match(message, /Node must allow addons/);
});

test('the error of an addon that is there and broken goes before those of missing ones, in one line', () => {
  const broken = 'libc.so.6: version `GLIBC_2.38` not found';
  const thrown = [LOADER, missing('linux-x64-gnu'), `${broken}\n(required by it)`, missing('x')];
  const { message, cause } = failure({ platform: 'linux', thrown });
  assert.ok(message.includes(`Node ${process.version}: ${broken}. The addon of each`), message);
  assert.equal((cause as Error).message, LOADER);
});

test('a platform without an addon is told which have one', () => {
  for (const [platform, arch] of [
    ['freebsd', 'x64'],
    ['linux', 'ia32'],
  ] as const) {
    const { message } = failure({ platform, arch });
    assert.match(
      message,
      /: there is none for this platform\. Run it on one of these \(x64 and arm64: /,
    );
    assert.doesNotMatch(message, /This platform needs/);
  }
  // One that somebody has built there has an error of its own.
  const { message } = failure({ platform: 'freebsd', thrown: [LOADER, 'wrong ELF class'] });
  assert.match(message, /: wrong ELF class\. The addon of each platform/);
});

test('what is thrown and is no error is told as it is', () => {
  const { message } = failure({ platform: 'linux', source: `throw 'out of order'` });
  assert.match(message, /: out of order\. The addon/);
});

test('a bundler that has put a path in its place is told how to leave it', () => {
  const error = failure({ platform: 'linux', source: `module.exports = '/addon.node'` });
  assert.match(error.message, /: a bundler has put something else in its place\. Keep the package/);
  assert.equal(error.cause, undefined);
  assert.equal(error.name, 'LockLoadError');
});
