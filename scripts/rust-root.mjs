// A Debian with a Rust whose standard library can be built from its sources: for targets whose library no toolchain
// of this machine has. Made once by debootstrap in `node_modules/.cache`, which takes root and half a minute.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const DEBIAN = join(ROOT, 'node_modules', '.cache', 'holdfast-debian');
const SUITE = 'forky';
const MIRROR = 'http://deb.debian.org/debian';
const PACKAGES = 'ca-certificates,rustc,cargo,rust-src,gcc,libc6-dev';
/** The scripts of all Debian suites are one; the debootstrap of Debian 12 knows it by this name. */
const SCRIPT = '/usr/share/debootstrap/scripts/sid';
const LIBRARY = join(DEBIAN, 'usr', 'lib', 'rustlib', 'src', 'rust', 'library', 'Cargo.toml');

const cargoHome = process.env.CARGO_HOME ?? join(homedir(), '.cargo');
/** Cargo downloads outside, where certificates and proxies are known. */
const unstable = { ...process.env, RUSTC_BOOTSTRAP: '1' };

/** The folder of that Debian. Throws what is missing to make it. */
export function debian() {
  if (existsSync(DEBIAN)) return DEBIAN;
  if (process.getuid?.() !== 0) throw new Error(`debootstrap needs root to make ${DEBIAN}`);
  if (!existsSync(SCRIPT)) run('apt-get', ['install', '-y', '-qq', 'debootstrap']);
  const aside = `${DEBIAN}.making`;
  rmSync(aside, { recursive: true, force: true });
  run('debootstrap', ['--variant=minbase', `--include=${PACKAGES}`, SUITE, aside, MIRROR, SCRIPT]);
  renameSync(aside, DEBIAN);
  return DEBIAN;
}

/** Runs cargo in that Debian, in the same folder, and builds the standard library too. Answers the exit code. */
export function cargoWithLibrary(args, path, env) {
  const root = debian();
  run('cargo', ['fetch', '--locked'], unstable);
  run('cargo', ['fetch', '--locked', '--quiet', '--manifest-path', fetchable()], unstable);
  for (const folder of [ROOT, cargoHome]) mkdirSync(join(root, folder), { recursive: true });
  // The mounts are those of this process alone: nobody can delete through them later.
  const enter = `mount --make-rprivate /
    mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"
    for folder in "$1" "$2"; do mount --bind "$folder" "$0$folder"; done
    folder="$1"; shift 2; exec chroot "$0" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"`;
  const library = ['-Z', 'build-std=std,panic_unwind', '--offline'];
  const [command, ...rest] = args;
  const { status } = spawnSync(
    'unshare',
    ['--mount', 'sh', '-ec', enter, root, ROOT, cargoHome, 'cargo', command, ...library, ...rest],
    {
      stdio: 'inherit',
      env: {
        ...env,
        HOME: '/root',
        CARGO_HOME: cargoHome,
        RUSTC_BOOTSTRAP: '1',
        PATH: `${path}/usr/sbin:/usr/bin:/sbin:/bin`,
      },
    },
  );
  return status;
}

/** The manifest of the standard library's sources. */
function fetchable() {
  if (!existsSync(LIBRARY)) throw new Error(`${DEBIAN} has no rust-src: remove it and try again`);
  return LIBRARY;
}

function run(program, args, env = process.env) {
  execFileSync(program, args, { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'], env });
}
