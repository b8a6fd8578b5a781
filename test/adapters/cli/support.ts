/** The command line in processes of its own, with or without a terminal. */

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { type Ended, ROOT } from '../../support/child.js';
import type { RedisServer } from '../../support/server.js';
import { pathOf, TMUX } from '../../support/tools.js';
import { until } from '../../support/wait.js';

export const MAIN = join(ROOT, 'dist', 'cli', 'main.js');

/** The environment of the tests, without the caller's variables that the command line reads. */
export function environment(server?: RedisServer, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { HOLDFAST_URL, REDIS_URL, NO_COLOR, ...env } = process.env;
  return { ...env, ...(server === undefined ? {} : { HOLDFAST_URL: server.url }), ...more };
}

/** A command line under way. */
export class Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  stdout = '';
  stderr = '';

  constructor(args: readonly string[], env: NodeJS.ProcessEnv, input = '') {
    this.child = spawn(process.execPath, [MAIN, ...args], { env, stdio: 'pipe' });
    this.child.stdout?.on('data', (chunk) => {
      this.stdout += chunk;
    });
    this.child.stderr?.on('data', (chunk) => {
      this.stderr += chunk;
    });
    this.child.stdin?.on('error', () => {});
    this.child.stdin?.end(input);
    this.ended = new Promise((resolve) => {
      this.child.once('close', (code, signal) => {
        resolve({ code, signal, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  /** Waits until it has written `text` to stdout. */
  async says(text: string | RegExp): Promise<void> {
    const found = () =>
      typeof text === 'string' ? this.stdout.includes(text) : text.test(this.stdout);
    await until(() => {
      if (this.child.exitCode === null) return found();
      assert.ok(found(), `it ended without saying ${text}: ${this.stdout}${this.stderr}`);
      return true;
    }, `${text}`);
  }
}

/** Runs the command line to its end. */
export function holdfast(env: NodeJS.ProcessEnv, ...args: readonly string[]): Promise<Ended> {
  return new Running(args, env).ended;
}

/** Runs it, expects an exit code, and answers its output. */
export async function ends(
  code: number,
  env: NodeJS.ProcessEnv,
  ...args: readonly string[]
): Promise<Ended> {
  const ended = await holdfast(env, ...args);
  assert.equal(ended.code, code, `${args.join(' ')}\n${ended.stdout}${ended.stderr}`);
  return ended;
}

/** A terminal of 100 columns and 30 rows, with a shell in it. */
export class Terminal {
  readonly #socket = `holdfast-${randomUUID()}`;

  constructor(env: NodeJS.ProcessEnv) {
    const size = ['-x', '100', '-y', '30'];
    const shell = ['env', 'PS1=$ ', 'ENV=', 'sh'];
    const started = spawnSync(
      pathOf(TMUX, 'tmux'),
      ['-L', this.#socket, '-f', '/dev/null', 'new-session', '-d', ...size, ...shell],
      {
        env: { ...env, TERM: 'xterm-256color', LC_ALL: 'C.UTF-8' },
        encoding: 'utf8',
      },
    );
    assert.equal(started.status, 0, started.stderr);
  }

  /** Types a line. */
  line(text: string): void {
    this.type(text);
    this.key('Enter');
  }

  /** Types a text. */
  type(text: string): void {
    this.#tmux('send-keys', '-l', text);
  }

  /** Types a key, such as `C-c`. */
  key(key: string): void {
    this.#tmux('send-keys', key);
  }

  /** Runs the command line in it. */
  holdfast(...args: readonly string[]): void {
    this.line(`${process.execPath} ${MAIN} ${args.join(' ')}`);
  }

  /** Empties it. */
  async clear(): Promise<void> {
    this.line('clear');
    await until(() => this.screen().trim() === '$', 'an empty screen');
  }

  resize(columns: number, rows: number): void {
    this.#tmux('resize-window', '-x', `${columns}`, '-y', `${rows}`);
  }

  /** The shown text, with colours as escape sequences if requested. */
  screen(colours = false): string {
    return this.#tmux('capture-pane', '-p', ...(colours ? ['-e'] : []));
  }

  /** Waits until it shows something. */
  async shows(what: RegExp): Promise<void> {
    try {
      await until(() => what.test(this.screen()), `${what} on the terminal`);
    } catch (error) {
      throw new Error(`${(error as Error).message}; it shows\n${this.screen()}`);
    }
  }

  /** A field of tmux, such as `cursor_flag` or `alternate_on`. */
  state(variable: string): string {
    return this.#tmux('display-message', '-p', `#{${variable}}`).trim();
  }

  close(): void {
    spawnSync('tmux', ['-L', this.#socket, 'kill-server']);
  }

  #tmux(...args: readonly string[]): string {
    return execFileSync('tmux', ['-L', this.#socket, ...args], { encoding: 'utf8' });
  }
}
