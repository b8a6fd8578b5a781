/** The command line in processes of its own, without a terminal. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { type Ended, ROOT } from '../../support/child.js';
import type { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';

export const MAIN = join(ROOT, 'dist', 'operators', 'cli', 'main.js');

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
