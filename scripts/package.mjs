// Packs the packages that npm publishes: the main one, and one with an addon for each platform of
// `napi.targets` that has been built. Tests install these very files.
//
//   node scripts/package.mjs [--addons native] [--out packages] [--all]
//
// `--all` is for a release: a platform without an addon is an error. Prints the paths of the tarballs,
// the main package's last, which is the order in which they can be published.

import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { notices } from './notices.mjs';

const ROOT = join(import.meta.dirname, '..');
/** The licences of the crates that are linked into an addon. */
const NOTICES = 'THIRD-PARTY.txt';
/** The fields of the manifest that only building needs. */
const OURS = ['devDependencies', 'napi', 'overrides', 'scripts'];

const { values } = parseArgs({
  options: {
    addons: { type: 'string', default: join(ROOT, 'native') },
    out: { type: 'string', default: join(ROOT, 'packages') },
    all: { type: 'boolean', default: false },
  },
});
const out = resolve(values.out);
mkdirSync(out, { recursive: true });

const stage = mkdtempSync(join(tmpdir(), 'holdfast-pack-'));
try {
  const platforms = stagePlatforms();
  stageMain(platforms);
  const built = platforms.filter(({ addon }) => existsSync(addon));
  const missing = platforms.filter((platform) => !built.includes(platform));
  if (built.length === 0 || (values.all && missing.length > 0)) {
    const names = missing.map(({ addon }) => addon).join(', ');
    throw new Error(`no addon at ${names}: build it first (npm run build:native)`);
  }
  const licences = notices();
  for (const { folder, addon } of built) {
    writeFileSync(join(folder, NOTICES), licences);
    adds(folder, NOTICES);
    copyFileSync(addon, join(folder, addonName(folder)));
    copyFileSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
  }
  for (const folder of [...built.map((platform) => platform.folder), stage]) {
    console.log(pack(folder));
  }
} finally {
  rmSync(stage, { recursive: true, force: true });
}

/** A folder for each platform, with a manifest that names its system, processor and C library. */
function stagePlatforms() {
  writeFileSync(join(stage, 'package.json'), readFileSync(join(ROOT, 'package.json')));
  execFileSync('npx', ['napi', 'create-npm-dirs', '--cwd', stage], { cwd: ROOT, stdio: 'pipe' });
  const npm = join(stage, 'npm');
  return readdirSync(npm).map((name) => {
    const folder = join(npm, name);
    return { folder, addon: join(resolve(values.addons), addonName(folder)), ...manifest(folder) };
  });
}

function stageMain(platforms) {
  const main = manifest(stage);
  for (const key of OURS) delete main[key];
  Object.assign(main, repository());
  main.optionalDependencies = Object.fromEntries(
    platforms.map(({ name, version }) => [name, version]),
  );
  writeFileSync(join(stage, 'package.json'), `${JSON.stringify(main, null, 2)}\n`);
  for (const folder of ['dist', 'monitoring', 'ui']) {
    cpSync(join(ROOT, folder), join(stage, folder), { recursive: true });
  }
  cpSync(join(ROOT, 'native', 'binding.js'), join(stage, 'native', 'binding.js'));
  // The page that errors name.
  for (const page of ['operations.md', 'servers.md']) {
    cpSync(join(ROOT, 'docs', page), join(stage, 'docs', page));
  }
  for (const file of ['README.md', 'LICENSE']) copyFileSync(join(ROOT, file), join(stage, file));
}

function adds(folder, file) {
  const changed = { ...manifest(folder), ...repository() };
  changed.files.push(file);
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(changed, null, 2)}\n`);
}

/** Where a workflow of GitHub packs: npm signs the provenance only of packages that name the repository. */
function repository() {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env;
  if (name === undefined) return {};
  return { repository: { type: 'git', url: `git+${server}/${name}.git` } };
}

function manifest(folder) {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

function addonName(folder) {
  return manifest(folder).main;
}

function pack(folder) {
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', out];
  const packed = execFileSync('npm', args, { cwd: folder, encoding: 'utf8', stdio: 'pipe' });
  return join(out, JSON.parse(packed)[0].filename);
}
