/** The packages as `scripts/package.mjs` makes them, in a registry, and folders that install from it. */

import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { Registry } from './registry.js';

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

/** Runs a program to its end, without blocking the registry, and answers its output. Rejects with all output. */
export async function succeeds(
  program: string,
  args: readonly string[],
  cwd = ROOT,
  env: NodeJS.ProcessEnv = {},
): Promise<string> {
  // A runner of tests that is started by another would report to it instead of running.
  const { NODE_TEST_CONTEXT: _, ...ours } = process.env;
  const options = { cwd, env: { ...ours, CI: '1', ...env } };
  try {
    return (await promisify(execFile)(program, args, options)).stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${program} ${args.join(' ')}\n${stdout}\n${stderr}`, { cause: error });
  }
}

export class Packed {
  readonly folder = mkdtempSync(join(tmpdir(), 'holdfast-package-'));
  readonly registry = new Registry();
  readonly #tarballs: readonly string[];
  readonly manifest: Manifest;

  private constructor(addons: string) {
    const { HOLDFAST_PACKAGES: made } = process.env;
    this.#tarballs = made === undefined ? pack(addons, this.folder) : madeIn(made);
    this.manifest = manifestIn(this.main) as Manifest;
  }

  /**
   * Takes the tarballs of the folder that `HOLDFAST_PACKAGES` names, as they are. Without it, packs the addons in a
   * folder: the one that `HOLDFAST_ADDONS` names, by default that of the last build.
   */
  static async start(
    addons = process.env['HOLDFAST_ADDONS'] ?? join(ROOT, 'native'),
  ): Promise<Packed> {
    const packed = new Packed(addons);
    await packed.registry.start();
    packed.#publish();
    return packed;
  }

  /** The tarball of the main package. */
  get main(): string {
    return this.#tarballs.at(-1) as string;
  }

  /** The tarball of this platform's addon. */
  get addon(): string {
    const found = this.#addons.find((tarball) => isForHere(manifestIn(tarball) as System));
    if (found === undefined) throw new Error('the addon of this platform has not been built');
    return found;
  }

  get #addons(): readonly string[] {
    return this.#tarballs.slice(0, -1);
  }

  /** The name of the package of this platform's addon. */
  get addonName(): string {
    return (manifestIn(this.addon) as Manifest).name;
  }

  /** An empty folder of a user. */
  project(name: string): string {
    const folder = join(this.folder, name);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"private":true}');
    writeFileSync(join(folder, '.npmrc'), `registry=${this.registry.url}\n`);
    return folder;
  }

  /** Has every package manager keep what it fetches in the folder. */
  environment(folder: string): NodeJS.ProcessEnv {
    return {
      npm_config_cache: join(folder, '.npm'),
      XDG_CACHE_HOME: join(folder, '.cache'),
      XDG_DATA_HOME: join(folder, '.data'),
      BUN_INSTALL_CACHE_DIR: join(folder, '.bun'),
      // What this machine says of registries would go before the folder's own file.
      npm_config_registry: this.registry.url,
    };
  }

  /** A new folder in which npm has installed the package. */
  async installed(name: string): Promise<string> {
    const folder = this.project(name);
    const args = ['install', '--no-audit', '--no-fund', 'holdfast'];
    await succeeds('npm', args, folder, this.environment(folder));
    return folder;
  }

  async stop(): Promise<void> {
    await this.registry.stop();
    removeFolder(this.folder);
  }

  #publish(): void {
    const built = new Set(this.#addons.map((tarball) => (manifestIn(tarball) as Manifest).name));
    for (const [name, version] of Object.entries(this.manifest.optionalDependencies)) {
      if (!built.has(name)) this.#publishFolder(this.#other(name, version));
    }
    for (const name of Object.keys(this.manifest.dependencies ?? {})) {
      this.#publishFolder(join(ROOT, 'node_modules', name));
    }
    for (const tarball of this.#tarballs) this.#publishFile(tarball);
  }

  #publishFolder(cwd: string): void {
    const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', this.folder];
    const [{ filename }] = JSON.parse(spawnSync('npm', pack, { cwd, encoding: 'utf8' }).stdout);
    this.#publishFile(join(this.folder, filename));
  }

  #publishFile(tarball: string): void {
    this.registry.publish(manifestIn(tarball) as Manifest, tarball);
  }

  /** A folder with the manifest of another platform's package. */
  #other(name: string, version: string): string {
    const folder = join(this.folder, name.replaceAll('/', '-'));
    mkdirSync(folder);
    const manifest = JSON.stringify({ name, version, ...systemOf(name) });
    writeFileSync(join(folder, 'package.json'), manifest);
    return folder;
  }
}

/** Packs the one tarball of `npm run package`, and answers its path. */
export function packHere(out: string): string {
  const [tarball = ''] = pack(join(ROOT, 'native'), out, '--here');
  return tarball;
}

function pack(addons: string, out: string, ...flags: string[]): readonly string[] {
  const args = ['scripts/package.mjs', '--out', out, '--addons', addons, ...flags];
  const packed = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  if (packed.status !== 0) throw new Error(packed.stderr);
  return packed.stdout.trim().split('\n');
}

/** The tarballs of a folder, the main package's last. */
function madeIn(folder: string): readonly string[] {
  const found = readdirSync(folder).filter((file) => file.endsWith('.tgz'));
  const addons = found.filter((file) => file.startsWith('holdfast-addon-'));
  const main = found.filter((file) => !addons.includes(file));
  return [...addons, ...main].map((file) => resolve(folder, file));
}

function manifestIn(tarball: string): unknown {
  const args = ['-xzOf', tarball, 'package/package.json'];
  return JSON.parse(spawnSync('tar', args, { encoding: 'utf8' }).stdout);
}

/** The systems for which a package is, by its manifest. */
type System = Partial<Record<'os' | 'cpu' | 'libc', string[]>>;

/** Whether the package is for this machine; of musl and glibc, the tests run on glibc. */
function isForHere({ os, cpu, libc = ['glibc'] }: System): boolean {
  return os?.[0] === process.platform && cpu?.[0] === process.arch && libc[0] === 'glibc';
}

function systemOf(name: string): System {
  const [, os = '', cpu = '', abi = ''] = name.split('-');
  const libc = os === 'linux' ? [abi === 'gnu' ? 'glibc' : 'musl'] : undefined;
  return { os: [os], cpu: [cpu], ...(libc && { libc }) };
}
