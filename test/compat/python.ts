/** A Python with redis-py, and a Python program that answers calls. */

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { needs } from '../support/tools.js';

const REDIS_PY = '8.1.0';

const root = join(__dirname, '..', '..', '..');
const folder = join(root, 'node_modules', '.cache', 'holdfast-redis-py');
const python = join(folder, 'bin', 'python');

const program = needs('python');
const run = promisify(execFile);

/** The path of a Python that has redis-py: got once, then kept in `node_modules/.cache`. */
export async function pythonWithRedis(): Promise<string> {
  if (await hasRedis()) return python;
  await run(program('python3'), ['-m', 'venv', '--clear', folder]);
  try {
    await run(python, ['-m', 'pip', 'install', '--no-input', '--quiet', `redis==${REDIS_PY}`]);
  } catch (error) {
    throw new Error(
      `the redis-py tests need redis ${REDIS_PY}, and pip could not get it: once it must reach ` +
        'the package index, from Python 3.10 or newer',
      { cause: error },
    );
  }
  return python;
}

async function hasRedis(): Promise<boolean> {
  const check = `import redis; assert redis.__version__ == '${REDIS_PY}'`;
  return run(python, ['-c', check]).then(
    () => true,
    () => false,
  );
}

interface Waiting {
  resolve(result: unknown): void;
  reject(error: Error): void;
}

/** A program of this folder that reads calls and writes results, one line of JSON each. */
export class PythonProgram {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
  readonly #gone: Promise<void>;
  #ended = false;
  #calls = 0;

  constructor(interpreter: string, file: string, args: readonly string[]) {
    const path = join(root, 'test', 'compat', file);
    const child = spawn(interpreter, [path, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child = child;
    this.#gone = new Promise((resolve) => child.once('close', resolve));
    void this.#gone.then(() => this.#refuse());
    child.stdin.on('error', () => {});
    createInterface(child.stdout).on('line', (line) => this.#answer(line));
  }

  async call(what: Record<string, unknown>): Promise<unknown> {
    if (this.#ended) throw new Error('the Python program has ended');
    this.#calls += 1;
    const id = this.#calls;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.stdin?.write(`${JSON.stringify({ id, ...what })}\n`);
    });
  }

  async close(): Promise<void> {
    this.#child.kill();
    await this.#gone;
  }

  #answer(line: string): void {
    const reply = JSON.parse(line) as { id: number; result?: unknown; error?: string };
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.error === undefined) waiting?.resolve(reply.result);
    else waiting?.reject(new Error(`the Python program failed: ${reply.error}`));
  }

  #refuse(): void {
    this.#ended = true;
    for (const { reject } of this.#waiting.values()) reject(new Error('the Python program ended'));
    this.#waiting.clear();
  }
}
