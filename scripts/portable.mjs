// Builds addons as they are published, for this platform or for others: for every glibc from 2.17 (2012) on, for
// musl, for Windows, and for macOS as far as linking goes. A plain build asks for the glibc of the machine that it
// was made on. Zig brings the old one, and the libraries of the other platforms; pip fetches it once into
// `node_modules/.cache`.
//
//   node scripts/portable.mjs [--all | target ...]      by default this machine's; into target/portable/addons

import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, join, relative } from 'node:path';
import { described } from './binaries.mjs';
import { builtWithLibrary, ended, prepare } from './rust-root.mjs';
import { ADDONS, addonFile, isOfSystem, libraryFile } from './targets.mjs';

const ROOT = join(import.meta.dirname, '..');
const GLIBC = [2, 17];
/** The oldest macOS on which an addon loads: the first with arm64. */
const MACOS = '11.0';
const MOST_BYTES = 4_000_000;
const BUILD = join(ROOT, 'target', 'portable');
const OUT = join(BUILD, 'addons');
const FRAMEWORKS = join(BUILD, 'frameworks');
/** What Node looks for in an addon. */
const ENTRY = 'napi_register_module_v1';
const TOOLS = ['ziglang==0.15.2', 'cargo-zigbuild==0.24.0'];

/**
 * How many are built at a time. Each ends with a minute or more in which one thread optimizes the whole program. They
 * share nothing but sources, as cargo lets only one build into a folder.
 */
const AT_A_TIME = 2;

const host = `${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-unknown-linux-gnu`;
const asked = process.argv.slice(2);
const targets = asked.includes('--all') ? Object.keys(ADDONS) : asked.length > 0 ? asked : [host];
const files = new Map(targets.map((target) => [target, join(OUT, addonFile(target))]));

mkdirSync(OUT, { recursive: true });
const tools = zig();
if (!targets.every(hasLibrary)) prepare(tools);
const waiting = [...files];
await Promise.all(Array.from({ length: AT_A_TIME }, buildThoseWaiting));

/** One that fails does not keep the others from being built. */
async function buildThoseWaiting() {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [target, file] = next;
    const began = performance.now();
    console.log(`${target} ...`);
    try {
      await build(target);
      copyFileSync(join(BUILD, target, target, 'release', libraryFile(target)), file);
      const seconds = Math.round((performance.now() - began) / 1000);
      console.log(`${file}: ${inspected(target, file)}; took ${seconds} s`);
    } catch (error) {
      console.error(error.message);
      process.exitCode = 1;
    }
  }
}

async function build(target) {
  const versioned = target.endsWith('-linux-gnu') ? `${target}.${GLIBC.join('.')}` : target;
  const what = ['--quiet', '--locked', '--release', '--lib'];
  const folder = ['--target-dir', join(BUILD, target)];
  const args = ['build', ...what, '--target', versioned, ...folder];
  const env = {
    [`CARGO_TARGET_${target.toUpperCase().replaceAll('-', '_')}_RUSTFLAGS`]: flagsOf(target),
    ...settingsOf(target),
  };
  const code = hasLibrary(target)
    ? await ended('cargo-zigbuild', args, {
        cwd: ROOT,
        env: { ...process.env, ...env, PATH: `${tools}${delimiter}${process.env.PATH}` },
      })
    : await builtWithLibrary('cargo-zigbuild', args, tools, env);
  if (code !== 0) throw new Error(`${target}: cargo-zigbuild ended with ${code}`);
}

function flagsOf(target) {
  // Node on musl is linked dynamically, and so is what it loads.
  if (target.endsWith('-musl')) return '-C target-feature=-crt-static';
  if (target.includes('windows')) return `-C link-arg=${exportsOfWindows()}`;
  if (!target.includes('apple')) return '';
  // -x and -S leave out what only debuggers need. The linker's own name for the addon would be its path here.
  const options = [`-F${stubs()}`, '-Wl,-x', '-Wl,-S', '-Wl,-install_name,@rpath/holdfast.node'];
  return options.map((option) => `-C link-arg=${option}`).join(' ');
}

function settingsOf(target) {
  if (target.includes('windows')) return { LIBNODE_PATH: nodeStub() };
  if (!target.includes('apple')) return {};
  // The linker strips: Rust would by a program that Debian does not have.
  return { MACOSX_DEPLOYMENT_TARGET: MACOS, CARGO_PROFILE_RELEASE_STRIP: 'none' };
}

/** Whether the toolchain of this machine has the standard library of the target. */
function hasLibrary(target) {
  const args = ['--print', 'target-libdir', '--target', target];
  const { stdout } = spawnSync('rustc', args, { encoding: 'utf8' });
  return existsSync((stdout ?? '').trim());
}

/** Frameworks of macOS without symbols, in place of those of its SDK: the addon finds its symbols when it is loaded. */
function stubs() {
  for (const name of ['Security', 'CoreFoundation']) {
    const folder = join(FRAMEWORKS, `${name}.framework`);
    const place = `/System/Library/Frameworks/${name}.framework/Versions/A/${name}`;
    mkdirSync(folder, { recursive: true });
    const targets = '[ x86_64-macos, arm64-macos ]';
    const text = `--- !tapi-tbd\ntbd-version: 4\ntargets: ${targets}\ninstall-name: '${place}'\n...\n`;
    writeFileSync(join(folder, `${name}.tbd`), text);
  }
  return FRAMEWORKS;
}

/**
 * A folder with empty archives. Napi-build demands a library of Node; the addon finds its functions in the program that
 * loads it. Debian's Rust asks for GCC's protection of the stack; zig brings its own.
 */
function nodeStub() {
  const folder = join(BUILD, 'libnode');
  mkdirSync(folder, { recursive: true });
  // Napi-build looks for the first, and the linker for the others.
  for (const name of ['libnode.dll', 'libnode.a', 'libssp_nonshared.a']) {
    writeFileSync(join(folder, name), '!<arch>\n');
  }
  return folder;
}

/** The file that names what the addon exports. Without it the linker exports, and so keeps, every function. */
function exportsOfWindows() {
  const file = join(BUILD, 'addon.def');
  writeFileSync(file, `EXPORTS\n  ${ENTRY}\n`);
  return file;
}

/** What is worth knowing of an addon. Throws if it could not be published. */
function inspected(target, file) {
  const bytes = readFileSync(file);
  if (bytes.length > MOST_BYTES) {
    throw new Error(`${file} has ${bytes.length} bytes, of at most ${MOST_BYTES}`);
  }
  const text = bytes.toString('latin1');
  if (!text.includes(ENTRY)) throw new Error(`${file} is no addon`);
  const glibc = newestGlibc(text);
  if (glibc > GLIBC[1]) throw new Error(`${file} asks for glibc 2.${glibc}`);
  const { system, cpu, libraries, least, signed } = described(bytes);
  if (!ADDONS[target].startsWith(`${system}-${cpu}`)) {
    throw new Error(`${file} is for ${system} on ${cpu}`);
  }
  const foreign = libraries.filter((library) => !isOfSystem(target, library));
  if (foreign.length > 0) throw new Error(`${file} needs ${foreign.join(', ')}`);
  if (least !== undefined && least !== MACOS) throw new Error(`${file} asks for macOS ${least}`);
  if (signed === false && cpu === 'arm64') throw new Error(`${file} is not signed`);
  const asks = [glibc > 0 && `glibc 2.${glibc}`, least && `macOS ${least}`, ...libraries];
  return `${bytes.length} bytes, asks for ${asks.filter(Boolean).join(', ')}`;
}

/** The minor version of the newest glibc 2 whose symbols the addon names; 0 if it names none. */
function newestGlibc(text) {
  const named = text.matchAll(/GLIBC_2\.(\d+)/g);
  return Math.max(0, ...Array.from(named, ([, minor]) => Number(minor)));
}

/** The folder to put before PATH. */
function zig() {
  const folder = join(ROOT, 'node_modules', '.cache', 'holdfast-zig');
  const bin = join(folder, 'bin');
  if (!existsSync(join(bin, 'cargo-zigbuild'))) {
    execFileSync('python3', ['-m', 'venv', folder], { stdio: 'inherit' });
    execFileSync(join(bin, 'pip'), ['install', '--quiet', ...TOOLS], { stdio: 'inherit' });
  }
  // Where there is no Python, the program itself must be on PATH.
  if (!existsSync(join(bin, 'zig'))) {
    const where = 'import ziglang; print(ziglang.__path__[0])';
    const found = execFileSync(join(bin, 'python3'), ['-c', where], { encoding: 'utf8' }).trim();
    // Relative: the link holds in a checkout that was copied, and in the Debian of rust-root.mjs.
    symlinkSync(join(relative(bin, found), 'zig'), join(bin, 'zig'));
  }
  return bin;
}
