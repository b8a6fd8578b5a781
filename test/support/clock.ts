/** Servers whose clock a test sets while they run. */

import { execFile } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { removeFolder } from './folders.js';
import { RedisServer } from './server.js';
import { needs } from './tools.js';

const compiler = needs('compiler');
const run = promisify(execFile);
const source = join(__dirname, '..', '..', '..', 'test', 'support', 'clock.c');

/** The reason why no clock can be set on this system, if there is one. */
export const NO_CLOCKS =
  process.platform === 'linux' ? undefined : 'the clock of a server can be set on Linux alone';

/** A server whose clock a test sets ahead of the time, or behind it. */
export class SteppedServer {
  private constructor(
    readonly server: RedisServer,
    readonly folder: string,
  ) {}

  static async start(): Promise<SteppedServer> {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-clock-'));
    try {
      const library = join(folder, 'clock.so');
      await run(compiler('cc'), ['-shared', '-fPIC', '-O2', '-o', library, source]);
      const env = { LD_PRELOAD: library, HOLDFAST_CLOCK: join(folder, 'ahead') };
      return new SteppedServer(await RedisServer.start({ env }), folder);
    } catch (error) {
      removeFolder(folder);
      throw error;
    }
  }

  /** Sets its clock `seconds` ahead from now on. Fails if that has no effect. */
  async step(seconds: number): Promise<void> {
    writeFileSync(join(this.folder, 'ahead'), String(seconds));
    const [told] = (await this.server.admin.time()) as unknown as [string];
    const ahead = Number(told) - Date.now() / 1000;
    // A server that was linked with a libc of its own would not be moved.
    if (Math.abs(ahead - seconds) > 5) throw new Error(`the clock is ${ahead} s ahead`);
  }

  async stop(): Promise<void> {
    await this.server.stop();
    removeFolder(this.folder);
  }
}
