// Checks the tarballs of a release, and writes the statement that names them into their folder.
//
//   node scripts/release/check.mjs packages [--tag v1.2.3] [--all]
//
// `--tag` is the tag of the release, which is the version. With `--all`, no platform may be missing.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { platformOf } from './platform-of.mjs';
import { statementOf } from './statement.mjs';
import { fileIn, STATEMENT, tarballsIn } from './tarballs.mjs';

const MOST_BYTES = { addon: 4_000_000, main: 500_000 };
/** What the package of a platform has besides its addon. */
const TEXTS = ['LICENSE', 'README.md', 'THIRD-PARTY.txt', 'package.json'];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tag: { type: 'string' }, all: { type: 'boolean', default: false } },
});
const [folder = 'packages'] = positionals;
const problems = [];
const demand = (holds, problem) => {
  if (!holds) problems.push(problem);
};

const tarballs = tarballsIn(folder);
const main = tarballs.at(-1);
const platforms = tarballs.slice(0, -1);
checkMain();
for (const platform of platforms) checkPlatform(platform);
if (problems.length > 0) {
  console.error(problems.join('\n'));
  process.exit(1);
}
const statement = join(folder, STATEMENT);
writeFileSync(statement, `${JSON.stringify(statementOf(tarballs, process.env), null, 2)}\n`);
console.log(`${statement} names ${tarballs.length} tarballs`);

function checkMain() {
  const { manifest, bytes, path } = main;
  const { name, version } = JSON.parse(readFileSync('package.json', 'utf8'));
  demand(
    manifest.name === name && manifest.version === version,
    `${path} is not ${name}@${version}`,
  );
  const { tag = `v${version}` } = values;
  demand(tag === `v${version}`, `the tag is ${tag}, and the version of package.json is ${version}`);
  demand(bytes <= MOST_BYTES.main, `${path} has ${bytes} bytes, of at most ${MOST_BYTES.main}`);
  checkRepository(main);
  const packed = new Set(platforms.map((platform) => platform.manifest.name));
  const wanted = Object.keys(manifest.optionalDependencies ?? {});
  const missing = wanted.filter((each) => !packed.has(each));
  demand(!values.all || missing.length === 0, `no tarball of ${missing.join(', ')}`);
}

function checkPlatform(platform) {
  const { manifest, files, path } = platform;
  const wanted = main.manifest.optionalDependencies?.[manifest.name];
  demand(
    wanted === manifest.version,
    `the main package wants ${manifest.name}@${wanted}, not ${path}`,
  );
  const others = files.filter((file) => !TEXTS.includes(file));
  demand(
    others.length === 1 && others[0] === manifest.main,
    `${path} should have ${manifest.main} alone, and has ${others.join(', ')}`,
  );
  checkRepository(platform);
  if (!files.includes(manifest.main)) return;
  const addon = fileIn(path, manifest.main);
  demand(
    addon.length <= MOST_BYTES.addon,
    `${path}: its addon has ${addon.length} bytes, of at most ${MOST_BYTES.addon}`,
  );
  const named = manifest.name.split('/addon-').at(-1);
  const is = platformOf(addon);
  demand(is === named, `${path}: its addon is for ${is}`);
  demand(addon.includes('napi_register_module_v1'), `${path}: its addon registers nothing`);
  console.log(`${path}: ${is}, ${addon.length} bytes`);
}

/** npm refuses provenance for a package that names another repository than the one that publishes it, or none. */
function checkRepository({ manifest, path }) {
  const { GITHUB_REPOSITORY: here } = process.env;
  if (here === undefined) return;
  const url = manifest.repository?.url ?? 'none';
  demand(
    url.endsWith(`/${here}.git`),
    `${path} names the repository ${url}, and is built in ${here}`,
  );
}
