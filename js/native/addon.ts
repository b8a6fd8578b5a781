/** Loads the native addon. */

import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type * as Binding from '../../native/binding.js';
import { LockLoadError } from '../api/errors.js';

function load(): typeof Binding {
  try {
    const binding: typeof Binding = require('../../native/binding.js');
    if (typeof binding.NativeManager === 'function') return binding;
  } catch (error) {
    throw failure(reason(error), `${wrongPlatform()}${CURE}`, error);
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

const CURE =
  'The addon of each platform is a separate package, an optional dependency (x64 and arm64: Linux with glibc ≥ 2.17 or musl, ' +
  'macOS, Windows). ' +
  'If it is missing, install again on this platform: npm install --include=optional holdfast; node_modules or a lock file ' +
  'from another platform may lack it. Node must allow addons (no --no-addons; with --permission also --allow-addons; Deno needs ' +
  '--allow-ffi, --allow-read and --allow-env). If a bundler has moved the files, keep holdfast out of the bundle.';

/** What is installed, if those are addons of other platforms: the usual case of a folder that was copied. */
function wrongPlatform(): string {
  const others = installedAddons();
  if (others.length === 0 || others.includes(`addon-${platformName()}`)) return '';
  const names = others.map((name) => `@holdfast/${name}`).join(', ');
  return `This node_modules has ${names}, and was installed on that platform; this one needs @holdfast/addon-${platformName()}. `;
}

/** The addons of any platform beside this package, as in `addon-linux-x64-gnu`; none where nobody can look. */
function installedAddons(): readonly string[] {
  try {
    // This package lies in node_modules/holdfast, in dist/native.
    const folder = join(dirname(dirname(dirname(__dirname))), '@holdfast');
    return readdirSync(folder).filter((name) => name.startsWith('addon-'));
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
  const broken = causes.find((message) => !message.startsWith('Cannot find module'));
  const missing = causes.find((message) => message.includes(`/addon-${process.platform}-`));
  return (broken ?? missing ?? summary).split('\n', 1).join();
}

/** @internal */
export const native = load();
