// Packs the packages that npm publishes: the main one, and one with an addon for each platform of
// `napi.targets` that has been built. Tests install these very files.
//
//   node scripts/package.mjs [--addons native] [--out packages] [--all | --here]
//
// `--all` is for a release: a platform without an addon is an error. `--here` packs one tarball, which holds the addon of this
// machine, for a service that installs from a checkout. Prints the paths of the tarballs, the main package's last, which is
// the order in which they can be published.

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
import { portable } from './links.mjs';
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
    here: { type: 'boolean', default: false },
  },
});
const out = resolve(values.out);
mkdirSync(out, { recursive: true });

const stage = mkdtempSync(join(tmpdir(), 'holdfast-pack-'));
try {
  const folders = values.here ? stageHere() : stageAll();
  for (const folder of folders) console.log(pack(folder));
} finally {
  rmSync(stage, { recursive: true, force: true });
}

/** One folder, with the addon of this machine. */
function stageHere() {
  const addons = resolve(values.addons);
  const found = existsSync(addons) ? readdirSync(addons) : [];
  const addon = found.find((file) => file.endsWith('.node'));
  if (addon === undefined) throw new Error(`no addon in ${addons}: build it first (npm run build)`);
  stageMain({});
  copyFileSync(join(addons, addon), join(stage, 'native', addon));
  writeFileSync(join(stage, NOTICES), notices());
  adds(stage, `native/${addon}`, NOTICES);
  return [stage];
}

/** A folder for each platform that has been built, and the main one. */
function stageAll() {
  const platforms = stagePlatforms();
  stageMain({
    optionalDependencies: Object.fromEntries(platforms.map(({ name, version }) => [name, version])),
  });
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
  return [...built.map((platform) => platform.folder), stage];
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

/** The folder of the main package. `others`: the packages that it names. */
function stageMain(others) {
  writeFileSync(join(stage, 'package.json'), readFileSync(join(ROOT, 'package.json')));
  const main = manifest(stage);
  for (const key of OURS) delete main[key];
  Object.assign(main, places(), others);
  writeManifest(stage, main);
  for (const folder of ['dist', 'monitoring']) {
    cpSync(join(ROOT, folder), join(stage, folder), { recursive: true });
  }
  mkdirSync(join(stage, 'native'));
  copyFileSync(join(ROOT, 'native', 'binding.js'), join(stage, 'native', 'binding.js'));
  copyFileSync(join(ROOT, 'LICENSE'), join(stage, 'LICENSE'));
  stagePages(main);
}

/**
 * The pages that come along, with links that work there: those that messages of the package name, and, while no repository is
 * known to which the README could link, all the others of `docs` with their pictures.
 */
function stagePages(main) {
  const others = home() === undefined ? pagesElsewhere() : [];
  const files = [...new Set(['README.md', ...main.files, ...others])];
  adds(stage, ...others.filter((file) => !main.files.includes(file)));
  const comes = (path) => [...files, 'LICENSE'].includes(path) || /^(dist|monitoring)\//.test(path);
  mkdirSync(join(stage, 'docs', 'images'), { recursive: true });
  for (const file of files.filter((each) => /\.(md|svg|png)$/.test(each))) {
    if (!file.endsWith('.md')) copyFileSync(join(ROOT, file), join(stage, file));
    else {
      const text = readFileSync(join(ROOT, file), 'utf8');
      const folder = file.startsWith('docs/') ? 'docs/' : '';
      const where = { home: home(), ref: `v${main.version}`, folder, comes };
      writeFileSync(join(stage, file), portable(text, where));
    }
  }
}

/** What the README links to, and what that links to: Markdown and its pictures. */
function pagesElsewhere() {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true });
  const pages = docs.filter((file) => /\.(md|svg|png)$/.test(file)).map((file) => `docs/${file}`);
  return [...pages, 'CHANGELOG.md', 'CONTRIBUTING.md', 'README.zh-CN.md', 'SECURITY.md'];
}

/** Changes the manifest of a package: it has these files, too. */
function adds(folder, ...files) {
  const changed = { ...manifest(folder), ...places() };
  changed.files.push(...files);
  writeManifest(folder, changed);
}

function writeManifest(folder, fields) {
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(fields, null, 2)}\n`);
}

/**
 * The address of the repository, where a workflow of GitHub packs; from it come all others. npm signs the provenance only of
 * packages that name it.
 */
function home() {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env;
  return name === undefined ? undefined : `${server}/${name}`;
}

/** The fields of a manifest that name places. */
function places() {
  const url = home();
  if (url === undefined) return {};
  return {
    homepage: `${url}#readme`,
    bugs: `${url}/issues`,
    repository: { type: 'git', url: `git+${url}.git` },
  };
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
