/** The native addon, or an error that says why there is none. */

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
  'Each platform has its addon in a package of its own (x64 and arm64: Linux with glibc ≥ 2.17 or musl, macOS, Windows). ' +
  'If it is missing, install again on this platform: npm install --include=optional holdfast; node_modules or a lock file ' +
  'of another platform may lack it. Node must allow addons (no --no-addons; with --permission also --allow-addons).';

function libcName(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? 'musl' : `glibc ${version}`;
}

/**
 * Why there is none. The loader chains what it met where it looked, the last first, without codes; an addon that is
 * there and cannot be loaded tells more than one that is not.
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
