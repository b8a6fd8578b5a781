// What is in the tarballs of a release.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What names the digests of a release's tarballs, beside them. */
export const STATEMENT = 'statement.json';

/** Every tarball of a folder: the platforms first and the main package last, the order in which they are published. */
export function tarballsIn(folder) {
  const found = readdirSync(folder)
    .filter((file) => file.endsWith('.tgz'))
    .map((file) => read(folder, file));
  if (found.length === 0) throw new Error(`${folder} has no tarballs: npm run package makes them`);
  const isMain = ({ manifest }) => manifest.optionalDependencies !== undefined;
  return [...found.filter((each) => !isMain(each)), ...found.filter(isMain)];
}

/** The bytes of one file in a tarball. */
export function fileIn(path, file) {
  return execFileSync('tar', ['-xzOf', path, `package/${file}`], { maxBuffer: 2 ** 28 });
}

function read(folder, file) {
  const path = join(folder, file);
  const bytes = readFileSync(path);
  const listed = execFileSync('tar', ['-tzf', path], { encoding: 'utf8' }).trim().split('\n');
  return {
    path,
    bytes: bytes.length,
    sha512: createHash('sha512').update(bytes).digest('hex'),
    manifest: JSON.parse(fileIn(path, 'package.json').toString()),
    files: listed.map((name) => name.replace(/^package\//, '')),
  };
}
