/** A PostgreSQL that tests start themselves, on a free loopback port. */

import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './server.js';
import { until } from './wait.js';

/** Where Debian keeps its binaries, none of which it puts on PATH. */
const DEBIAN = '/usr/lib/postgresql';

/** The folder of the programs: `HOLDFAST_POSTGRES`, the first on PATH, or Debian's newest. */
function programs(): string {
  const named = process.env['HOLDFAST_POSTGRES'];
  if (named !== undefined) {
    if (existsSync(join(named, 'postgres'))) return named;
    throw new Error(`HOLDFAST_POSTGRES names no folder with a postgres in it: ${named}`);
  }
  const debian = existsSync(DEBIAN)
    ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a))
    : [];
  const folders = [
    ...(process.env['PATH'] ?? '').split(':').filter((folder) => folder !== ''),
    ...debian.map((version) => join(DEBIAN, version, 'bin')),
  ];
  const found = folders.find((folder) =>
    ['initdb', 'postgres'].every((program) => existsSync(join(folder, program))),
  );
  if (found !== undefined) return found;
  throw new Error(
    'this test needs PostgreSQL: install it (Debian: apt-get install postgresql; macOS: brew ' +
      'install postgresql) or name the folder of its programs in HOLDFAST_POSTGRES',
  );
}

/** PostgreSQL refuses to run as root. */
function unprivileged(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const idOf = (kind: string) =>
    Number(execFileSync('id', [kind, 'nobody'], { encoding: 'utf8' }).trim());
  return { uid: idOf('-u'), gid: idOf('-g') };
}

/** What runs now: a test that is ended by a signal takes it along. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  // On SIGQUIT it ends its own processes at once, and then itself.
  for (const child of running) child.kill('SIGQUIT');
});

export class Postgres {
  readonly #programs = programs();
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-postgres-'));
  readonly #user = unprivileged();
  #port = 0;
  #child: ChildProcess | undefined;

  private constructor() {}

  /** Starts a server with an empty database, and waits until it answers. */
  static async start(): Promise<Postgres> {
    const postgres = new Postgres();
    try {
      postgres.#makeCluster();
      for (let attempt = 1; ; attempt++) {
        try {
          await postgres.#start();
          return postgres;
        } catch (error) {
          // Somebody else may have taken the port meanwhile.
          if (attempt === 3) throw error;
        }
      }
    } catch (error) {
      await postgres.stop();
      throw error;
    }
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.#port}/postgres`;
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child !== undefined && running.has(child)) {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.ref();
      child.kill('SIGQUIT');
      await gone;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  get #data(): string {
    return join(this.#folder, 'data');
  }

  get #log(): string {
    return readFileSync(join(this.#folder, 'log'), 'utf8');
  }

  #makeCluster(): void {
    const { uid, gid } = this.#user;
    if (uid !== undefined && gid !== undefined) chownSync(this.#folder, uid, gid);
    const { status, stdout, stderr } = spawnSync(
      join(this.#programs, 'initdb'),
      ['-D', this.#data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-locale', '--no-sync'],
      { ...this.#user, cwd: this.#folder, encoding: 'utf8' },
    );
    if (status !== 0) throw new Error(`initdb failed:\n${stdout}${stderr}`);
  }

  async #start(): Promise<void> {
    this.#port = await freePort();
    const settings = {
      fsync: 'off',
      full_page_writes: 'off',
      listen_addresses: '127.0.0.1',
      port: this.#port,
      unix_socket_directories: '',
    };
    const log = openSync(join(this.#folder, 'log'), 'w');
    const child = spawn(
      join(this.#programs, 'postgres'),
      ['-D', this.#data, ...Object.entries(settings).flatMap(([k, v]) => ['-c', `${k}=${v}`])],
      { ...this.#user, cwd: this.#folder, stdio: ['ignore', log, log] },
    );
    this.#child = child;
    running.add(child);
    child.once('exit', () => running.delete(child));
    child.unref();
    await until(() => {
      if (child.exitCode !== null) throw new Error(`PostgreSQL ended at once:\n${this.#log}`);
      return this.#log.includes('ready to accept connections');
    }, `PostgreSQL on port ${this.#port}`);
  }
}
