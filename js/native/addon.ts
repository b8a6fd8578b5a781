/** Loads the native addon. */

import type * as Binding from '../../native/binding.js';
import { LockLoadError } from '../api/errors.js';

function load(): typeof Binding {
  try {
    return require('../../native/binding.js') as typeof Binding;
  } catch (error) {
    const libc = process.platform === 'linux' ? ` (${libcName()})` : '';
    throw new LockLoadError(
      `holdfast cannot load its addon for ${process.platform}-${process.arch}${libc}, Node ${process.version}: ` +
        `${reason(error)}. ${CURE}`,
      error,
    );
  }
}

const CURE =
  'The addon of each platform is a separate package (x64 and arm64: Linux with glibc ≥ 2.17 or musl, macOS, Windows). ' +
  'If it is missing, install again on this platform: npm install --include=optional holdfast; node_modules or a lock file ' +
  'from another platform may lack it. Node must allow addons (no --no-addons; with --permission also --allow-addons).';

function libcName(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? 'musl' : `glibc ${version}`;
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
