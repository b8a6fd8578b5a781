/** Loads the native addon. */

import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type * as Binding from '../../native/binding.js';
import { LockLoadError } from '../base/errors.js';

function load(): typeof Binding {
  try {
    const binding: typeof Binding = require('../../native/binding.js');
    if (typeof binding.NativeManager === 'function') return binding;
  } catch (error) {
    const why = reason(error);
    if (isMissing(why) && !PLATFORMS.includes(platformName())) {
      throw failure('there is none for this platform', NO_PLATFORM_CURE, error);
    }
    throw failure(why, `${missingPackage(why)}${CURE}`, error);
  }
  // A bundler that treats the addon as a resource makes `require` answer its path.
  throw failure('a bundler has put something else in its place', BUNDLER_CURE, undefined);
}

function failure(why: string, cure: string, cause: unknown): LockLoadError {
  const libc = process.platform === 'linux' ? ` (${libcName()})` : '';
  const system = `${process.platform}-${process.arch}${libc}, Node ${process.version}`;
  return new LockLoadError(`holdfast cannot load its addon for ${system}: ${why}. ${cure}`, cause);
}

const BUNDLER_CURE =
  'Keep the package holdfast out of the bundle, as an external dependency (esbuild: --external:holdfast), or load .node ' +
  'files as addons (esbuild: --loader:.node=copy).';

/** The ends of the names of the packages that exist. */
const PLATFORMS = ['linux-gnu', 'linux-musl', 'darwin', 'win32-msvc'].flatMap((name) => {
  const [os, ...abi] = name.split('-');
  return ['x64', 'arm64'].map((cpu) => [os, cpu, ...abi].join('-'));
});

const NAMES = 'x64 and arm64: Linux with glibc ≥ 2.17 or musl, macOS, Windows';

const NO_PLATFORM_CURE = `Run it on one of these (${NAMES}), or build holdfast from its sources here: npm install in a clone, with Rust.`;

const CURE =
  `The addon of each platform is a separate package, an optional dependency (${NAMES}). ` +
  'Node must allow addons (no --no-addons; with --permission also --allow-addons; Deno needs ' +
  '--allow-ffi, --allow-read and --allow-env). If a bundler has moved the files, keep holdfast out of the bundle.';

/** Which package is to be installed, and why it is not there; nothing if it is there, or if that is unknown. */
function missingPackage(why: string): string {
  const needed = `@holdfast/addon-${platformName()}`;
  const installed = installedAddons();
  if (!isMissing(why) || installed.includes(needed)) return '';
  const cause =
    installed.length > 0
      ? `this node_modules has ${installed.join(', ')}, and was installed on that platform`
      : 'optional dependencies were left out (--omit=optional, --no-optional), or the lock file is of another platform';
  const { version } = require('../../package.json') as { version: string };
  return (
    `This platform needs ${needed}, which is missing: ${cause}. Install again on this platform: npm install ` +
    `--include=optional holdfast; if the lock file lacks it: npm install --save-optional ${needed}@${version}. `
  );
}

/** Whether no addon was found, by the words of Node or of the loader. */
function isMissing(why: string): boolean {
  return /^(?:Cannot find (?:module|native binding)|Unsupported (?:OS|architecture))/.test(why);
}

/** The packages of addons of any platform beside this one, as in `@holdfast/addon-linux-x64-gnu`; none where the folder cannot be read. */
function installedAddons(): readonly string[] {
  try {
    // This package lies in node_modules/holdfast, and this file in dist/shared.
    const folder = join(dirname(dirname(dirname(__dirname))), '@holdfast');
    const names = readdirSync(folder).filter((name) => name.startsWith('addon-'));
    return names.map((name) => `@holdfast/${name}`);
  } catch {
    return [];
  }
}

/** The end of the name of this platform's package. */
function platformName(): string {
  const abi = { linux: libcName() === 'musl' ? '-musl' : '-gnu', win32: '-msvc' } as Record<
    string,
    string
  >;
  return `${process.platform}-${process.arch}${abi[process.platform] ?? ''}`;
}

function libcName(): string {
  try {
    const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
    const version = report?.header?.glibcVersionRuntime;
    return version === undefined ? 'musl' : `glibc ${version}`;
  } catch {
    // Deno denies the report without its permission `sys`.
    return 'libc unknown';
  }
}

/**
 * Why the addon could not be loaded. The loader chains the errors of all places, the last first, without codes; the
 * error of an addon that exists and cannot be loaded is worth more than that of a missing one.
 */
function reason(error: unknown): string {
  const met: string[] = [];
  for (let next = error; next instanceof Error; next = next.cause) met.push(next.message);
  const [summary = String(error), ...causes] = met;
  const broken = causes.find((message) => !isMissing(message));
  const missing = causes.find((message) => message.includes(`/addon-${process.platform}-`));
  return (broken ?? missing ?? summary).split('\n', 1).join();
}

/** @internal */
export const native = load();
