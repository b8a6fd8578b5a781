/** SQL servers that tests start themselves, on free loopback ports. */

import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { chownSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeFolder } from './folders.js';
import { freePort } from './server.js';
import { until } from './wait.js';

/** The servers refuse to run as root. */
function unprivileged(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const idOf = (kind: string) =>
    Number(execFileSync('id', [kind, 'nobody'], { encoding: 'utf8' }).trim());
  return { uid: idOf('-u'), gid: idOf('-g') };
}

/** How to run a kind of server. */
export interface Kind {
  /** With it the server ends at once. */
  readonly stopSignal: NodeJS.Signals;
  /** What its log says when clients may come. */
  readonly ready: string;
  /** The program that makes an empty database, and its arguments. */
  make(folder: string): readonly [string, ...string[]];
  /** The server's program, and its arguments. */
  run(folder: string, port: number): readonly [string, ...string[]];
}

/** What runs now: a test that is ended by a signal takes it along. */
const running = new Map<ChildProcess, NodeJS.Signals>();
process.once('exit', () => {
  for (const [child, signal] of running) child.kill(signal);
});

export class DatabaseServer {
  port = 0;
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-database-'));
  readonly #user = unprivileged();
  readonly #kind: Kind;
  #child: ChildProcess | undefined;

  protected constructor(kind: Kind) {
    this.#kind = kind;
  }

  /** Starts the server with an empty database, and waits until it answers. */
  protected async start(): Promise<this> {
    try {
      this.#make();
      for (let attempt = 1; ; attempt++) {
        try {
          await this.#run();
          return this;
        } catch (error) {
          // Somebody else may have taken the port meanwhile.
          if (attempt === 3) throw error;
        }
      }
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child !== undefined && running.has(child)) {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.ref();
      child.kill(this.#kind.stopSignal);
      await gone;
    }
    removeFolder(this.#folder);
  }

  get #log(): string {
    return readFileSync(join(this.#folder, 'log'), 'utf8');
  }

  #make(): void {
    const { uid, gid } = this.#user;
    if (uid !== undefined && gid !== undefined) chownSync(this.#folder, uid, gid);
    const [program, ...args] = this.#kind.make(this.#folder);
    const options = { ...this.#user, cwd: this.#folder, encoding: 'utf8' } as const;
    const { status, stdout, stderr } = spawnSync(program, args, options);
    if (status !== 0) throw new Error(`${program} failed:\n${stdout}${stderr}`);
  }

  async #run(): Promise<void> {
    this.port = await freePort();
    const [program, ...args] = this.#kind.run(this.#folder, this.port);
    const log = openSync(join(this.#folder, 'log'), 'w');
    const options = { ...this.#user, cwd: this.#folder };
    const child = spawn(program, args, { ...options, stdio: ['ignore', log, log] });
    this.#child = child;
    running.set(child, this.#kind.stopSignal);
    child.once('exit', () => running.delete(child));
    child.unref();
    await until(() => {
      if (child.exitCode !== null) throw new Error(`${program} ended at once:\n${this.#log}`);
      return this.#log.includes(this.#kind.ready);
    }, `${program} on port ${this.port}`);
  }
}
