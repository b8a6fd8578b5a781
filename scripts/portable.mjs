// Builds the addon for this Linux as it is published, for every glibc from 2.17 (2012) on. A plain build
// asks for the glibc of the machine that it was made on. Zig brings the old one; it is on PATH, or is fetched
// once by pip into `node_modules/.cache`.
//
//   node scripts/portable.mjs [target]      by default that of this machine; into target/portable/addons

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const GLIBC = [2, 17];
const BUILD = join(ROOT, 'target', 'portable');
const ADDONS = join(BUILD, 'addons');
const TOOLS = ['ziglang==0.15.2', 'cargo-zigbuild==0.24.0'];

const host = `${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-unknown-linux-gnu`;
const target = process.argv[2] ?? host;
const versioned = target.endsWith('-gnu') ? `${target}.${GLIBC.join('.')}` : target;

// Its own folder: with other flags cargo would rebuild everything at each change between the two builds.
const where = ['--target-dir', BUILD, '--output-dir', ADDONS];
const args = ['run', '--silent', 'build:native', '--', '-x', '--target', versioned, ...where];
const { status } = spawnSync('npm', args, {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, PATH: `${zig()}${process.env.PATH}` },
});
if (status !== 0) process.exit(status ?? 1);
for (const addon of readdirSync(ADDONS).filter((file) => file.endsWith('.node'))) {
  const newest = newestGlibc(join(ADDONS, addon));
  if (newest > GLIBC[1]) throw new Error(`${addon} asks for glibc 2.${newest}`);
  console.log(`${join(ADDONS, addon)} asks for glibc 2.${newest}`);
}

/** The minor version of the newest glibc 2 whose symbols the addon names; 0 if it names none. */
function newestGlibc(addon) {
  const named = readFileSync(addon, 'latin1').matchAll(/GLIBC_2\.(\d+)/g);
  return Math.max(0, ...Array.from(named, ([, minor]) => Number(minor)));
}

/** The folders to put before PATH. */
function zig() {
  const there = (name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0;
  if (there('cargo-zigbuild') && (there('zig') || there('python-zig'))) return '';
  const folder = join(ROOT, 'node_modules', '.cache', 'holdfast-zig');
  const bin = join(folder, 'bin');
  if (!existsSync(join(bin, 'cargo-zigbuild'))) {
    execFileSync('python3', ['-m', 'venv', folder], { stdio: 'inherit' });
    execFileSync(join(bin, 'pip'), ['install', '--quiet', ...TOOLS], { stdio: 'inherit' });
  }
  return `${bin}${delimiter}`;
}
