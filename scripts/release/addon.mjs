// Builds the addon for a platform by the toolchain of this machine, as it is published.
//
//   node scripts/release/addon.mjs aarch64-apple-darwin      into target/portable/addons
//
// On Linux scripts/portable.mjs does it, for old systems too. `napi build` is for machines of developers: it also makes
// the library that the tests of the crate link, and with that cargo leaves out the `lto` of the profile.

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { libraryFile } from '../targets.mjs';
import { platformOf } from './platform-of.mjs';

const OUT = join('target', 'portable', 'addons');

const [target] = process.argv.slice(2);
const what = ['--locked', '--release', '--lib', '--crate-type', 'cdylib', '--target', target];
execFileSync('cargo', ['rustc', ...what], { stdio: 'inherit' });
const library = join('target', target, 'release', libraryFile(target));
const file = join(OUT, `holdfast.${platformOf(readFileSync(library))}.node`);
mkdirSync(OUT, { recursive: true });
copyFileSync(library, file);
console.log(file);
