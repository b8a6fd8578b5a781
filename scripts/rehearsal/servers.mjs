// The servers that .ci/servers fetches, in place of the images from which a workflow takes them.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');

/** What .ci/servers calls the server of an image, such as `valkey/valkey:8`; nothing if it has none. */
export function serverOf(image) {
  const wanted = image.split('/').at(-1).replace(':', '-');
  const lines = readFileSync(join(ROOT, '.ci', 'servers.index'), 'utf8').split('\n');
  const names = lines.filter((line) => !line.startsWith('#')).map((line) => line.split(' ')[0]);
  return names.find((name) => name === wanted || name.startsWith(`${wanted}.`));
}

/** Puts the program of a server into a folder, under the name that it has in its image. */
export function copyServer(name, folder) {
  const program = execFileSync(join(ROOT, '.ci', 'servers'), [name], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 2],
  }).trim();
  if (program === '') throw new Error(`.ci/servers could not fetch ${name}`);
  const copy = join(folder, `${name.split('-')[0]}-server`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(copy, `#!/bin/sh\nexec '${program}' "$@"\n`);
  chmodSync(copy, 0o755);
}
