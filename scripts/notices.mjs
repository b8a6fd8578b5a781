// The licences of the crates that are linked into the addon, as their authors wrote them.

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const RULE = '='.repeat(100);
const TEXTS = /^(licen[cs]e|copying|copyright|notice|unlicense)/i;

/** Every text once, below the names, versions and licences of the crates that it is for. */
export function notices() {
  const args = ['metadata', '--format-version', '1', '--locked', '--all-features'];
  const options = {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'pipe'],
  };
  const metadata = JSON.parse(execFileSync('cargo', args, options));
  const linked = linkedInto(metadata);
  const crates = metadata.packages.filter(
    ({ id }) => linked.has(id) && id !== metadata.resolve.root,
  );
  const users = new Map();
  for (const crate of crates) {
    const line = `${crate.name} ${crate.version} (${crate.license})`;
    for (const text of textsOf(crate)) users.set(text, [...(users.get(text) ?? []), line]);
  }
  return Array.from(users, ([text, lines]) => `${RULE}\n${lines.join('\n')}\n\n${text}\n`).join(
    '\n',
  );
}

/** The ids of all dependencies of the root, except those for builds and tests alone. */
function linkedInto({ resolve }) {
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  const found = new Set();
  const next = [resolve.root];
  for (let id = next.pop(); id !== undefined; id = next.pop()) {
    if (found.has(id)) continue;
    found.add(id);
    for (const { pkg, dep_kinds } of nodes.get(id).deps) {
      if (dep_kinds.some(({ kind }) => kind === null)) next.push(pkg);
    }
  }
  return found;
}

function textsOf({ manifest_path, authors, repository }) {
  const folder = dirname(manifest_path);
  const texts = readdirSync(folder, { withFileTypes: true })
    .filter((file) => file.isFile() && TEXTS.test(file.name))
    .map(({ name }) => readFileSync(join(folder, name), 'utf8').trim());
  if (texts.length > 0) return texts;
  return [`Copyright ${authors.join(', ')}; the text is that of the licence: ${repository}`];
}
