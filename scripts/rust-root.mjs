// A Debian with a Rust whose standard library can be built from its sources: for targets whose library no toolchain
// of this machine has, and for machines without Rust. Made once by debootstrap in `node_modules/.cache`, which takes
// root.

import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const DEBIAN = join(ROOT, 'node_modules', '.cache', 'holdfast-debian');
const SUITE = 'forky';
const MIRROR = 'http://deb.debian.org/debian';
const PACKAGES = 'ca-certificates,rustc,cargo,rust-src,gcc,libc6-dev';
/** The scripts of all Debian suites are one; the debootstrap of Debian 12 knows it by this name. */
const SCRIPT = '/usr/share/debootstrap/scripts/sid';
/** The manifest of the standard library's sources, in that Debian. */
const LIBRARY = '/usr/lib/rustlib/src/rust/library/Cargo.toml';
/** The authorities that this machine trusts, for downloads. */
const AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt';
/** What this machine says of cargo and of proxies. */
const OF_DOWNLOADS = /^cargo_|_proxy$/i;

const cargoHome = process.env.CARGO_HOME ?? join(homedir(), '.cargo');

/** Makes it, unless it is there. Throws what is missing to make it. */
function debian() {
  if (existsSync(DEBIAN)) return;
  if (process.getuid?.() !== 0) throw new Error(`debootstrap needs root to make ${DEBIAN}`);
  if (!existsSync(SCRIPT)) throw new Error('there is no debootstrap: apt-get install debootstrap');
  const aside = `${DEBIAN}.making`;
  rmSync(aside, { recursive: true, force: true });
  const args = ['--variant=minbase', `--include=${PACKAGES}`, SUITE, aside, MIRROR, SCRIPT];
  // It mounts the folder of processes, which must not stay if it is ended.
  execFileSync('unshare', ['--mount', 'debootstrap', ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  renameSync(aside, DEBIAN);
}

/** Makes that Debian, and fetches the sources of what is built in it. Throws what is missing. */
export function prepare(tools) {
  debian();
  for (const manifest of [[], ['--manifest-path', LIBRARY]]) {
    const [program, args, options] = inside(
      ['cargo', '--quiet', 'fetch', '--locked', ...manifest],
      tools,
    );
    execFileSync(program, args, { ...options, stdio: 'inherit' });
  }
}

/**
 * Runs `program`, whose options are cargo's, in that Debian and in the same folder: it builds the standard library too.
 * Answers the exit code. Needs `prepare`.
 */
export function builtWithLibrary(program, [command, ...args], tools, env) {
  const library = ['-Z', 'build-std=std,panic_unwind', '--offline'];
  return ended(...inside([program, command, ...library, ...args], tools, env));
}

/** The exit code of a program, or the signal that ended it. */
export function ended(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: 'inherit' });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? signal));
  });
}

/** What runs a command inside: program, arguments, options. */
function inside(command, tools, env) {
  mkdirSync(cargoHome, { recursive: true });
  for (const folder of [ROOT, cargoHome]) mkdirSync(join(DEBIAN, folder), { recursive: true });
  for (const file of ['/etc/resolv.conf', AUTHORITIES]) {
    if (existsSync(file)) copyFileSync(file, join(DEBIAN, file));
  }
  // The mounts are those of this process alone: nobody can delete through them later.
  const enter = `mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"
    for folder in "$1" "$2"; do mount --bind "$folder" "$0$folder"; done
    folder="$1"; shift 2; exec chroot "$0" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"`;
  const unshare = ['--mount', 'sh', '-ec', enter, DEBIAN, ROOT, cargoHome, ...command];
  const ours = Object.entries(process.env).filter(([name]) => OF_DOWNLOADS.test(name));
  const all = {
    ...Object.fromEntries(ours),
    ...env,
    HOME: '/root',
    CARGO_HOME: cargoHome,
    CARGO_HTTP_CAINFO: AUTHORITIES,
    RUSTC_BOOTSTRAP: '1',
    PATH: `${tools}:/usr/sbin:/usr/bin:/sbin:/bin`,
  };
  return ['unshare', unshare, { env: all }];
}
