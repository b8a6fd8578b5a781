/** The addon that is built with the feature `faults`: it can be asked to panic, and shows both halves of the boundary. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './child.js';
import { needs } from './tools.js';

const rust = needs('rust');

const BUILT = { darwin: 'libholdfast.dylib', win32: 'holdfast.dll' } as Record<string, string>;

/** Builds the addon, and answers its path: the value of `NAPI_RS_NATIVE_LIBRARY_PATH` that loads it. */
export function buildFaultyAddon(): string {
  const options = { cwd: ROOT, stdio: 'pipe' } as const;
  execFileSync(rust('cargo'), ['build', '--quiet', '--features', 'faults'], options);
  const folder = join(ROOT, 'target', 'faults');
  mkdirSync(folder, { recursive: true });
  const addon = join(folder, 'holdfast.node');
  const built = BUILT[process.platform] ?? 'libholdfast.so';
  // Renamed into place: another test may have loaded the file that was there.
  const copy = `${addon}.${process.pid}`;
  copyFileSync(join(ROOT, 'target', 'debug', built), copy);
  renameSync(copy, addon);
  return addon;
}
