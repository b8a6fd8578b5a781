/** The command line at a terminal. */

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { needs } from '../../support/tools.js';
import { until } from '../../support/wait.js';
import { MAIN } from './support.js';

const tmux = needs('tmux');

/** A terminal of 100 columns and 30 rows, with a shell in it. */
export class Terminal {
  readonly #socket = `holdfast-${randomUUID()}`;

  constructor(env: NodeJS.ProcessEnv) {
    const size = ['-x', '100', '-y', '30'];
    const shell = ['env', 'PS1=$ ', 'ENV=', 'sh'];
    const started = spawnSync(
      tmux(),
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

  /** Writes all that it gets from now on to a file, escape sequences among it. */
  record(file: string): void {
    this.#tmux('pipe-pane', `cat > ${file}`);
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
    spawnSync(tmux(), ['-L', this.#socket, 'kill-server']);
  }

  #tmux(...args: readonly string[]): string {
    return execFileSync(tmux(), ['-L', this.#socket, ...args], { encoding: 'utf8' });
  }
}
