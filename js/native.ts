/** The native addon, or an error that says why there is none. */

import type * as Binding from '../native/binding.js';
import { LockLoadError } from './errors.js';

function load(): typeof Binding {
  try {
    return require('../native/binding.js') as typeof Binding;
  } catch (error) {
    const libc = process.platform === 'linux' ? ` (${libcName()})` : '';
    throw new LockLoadError(
      `holdfast has no native addon for ${process.platform}-${process.arch}${libc} on Node ${process.version}: ` +
        `${innermost(error)}. If the package was installed for another platform, or without optional ` +
        'dependencies, install it again here; addons must be allowed (no --no-addons).',
      error,
    );
  }
}

function libcName(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? 'musl' : `glibc ${version}`;
}

/** The loader nests its attempts; the innermost cause is the one that a person needs. */
function innermost(error: unknown): string {
  let inner = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return inner instanceof Error ? inner.message : String(inner);
}

/** @internal */
export const native = load();
