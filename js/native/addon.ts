/** Loads the native addon. */

import type * as Binding from '../../native/binding.js';
import { LockLoadError } from '../api/errors.js';

function load(): typeof Binding {
  try {
    const binding: typeof Binding = require('../../native/binding.js');
    if (typeof binding.NativeManager === 'function') return binding;
  } catch (error) {
    throw failure(reason(error), CURE, error);
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
  'The addon of each platform is a separate package (x64 and arm64: Linux with glibc ≥ 2.17 or musl, macOS, Windows). ' +
  'If it is missing, install again on this platform: npm install --include=optional holdfast; node_modules or a lock file ' +
  'from another platform may lack it. Node must allow addons (no --no-addons; with --permission also --allow-addons; Deno needs ' +
  '--allow-ffi, --allow-read and --allow-env). If a bundler has moved the files, keep holdfast out of the bundle.';

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
