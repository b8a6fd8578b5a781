/** Runs blocks of code as a reader would: each in a file of its own, by `node file`. Nothing else keeps its process alive. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import type { Block } from './blocks.js';

/** Where a block runs. */
export interface Surroundings {
  /** Its environment variables, besides those of this process. */
  readonly env: Readonly<Record<string, string>>;
  /** Replacements for texts of the page, above all addresses. */
  readonly instead: Readonly<Record<string, string>>;
  /** A module, run first: it gives the block what the page takes for granted, as globals. */
  readonly stage?: string;
}

/** A program that still runs then has hung. */
const PATIENCE_MS = 60_000;

/**
 * Runs a block of TypeScript, JavaScript or shell, which must end well. Behind a `console.log` the page
 * may say what is printed, as in `console.log(lock.held) // true`; that must be so, `…` standing for
 * anything.
 */
export async function runProgram(block: Block, surroundings: Surroundings): Promise<void> {
  comparePrinted(block, await printedBy(block, surroundings));
}

/** Runs a block, which must end well, and answers what it prints. */
export async function printedBy(
  block: Block,
  { env, instead, stage }: Surroundings,
): Promise<string> {
  let { code } = block;
  for (const [said, real] of Object.entries(instead)) code = code.replaceAll(said, real);
  // Inside the package, where its own name and its development dependencies resolve.
  const parent = join(ROOT, 'build', 'docs');
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, 'block-'));
  try {
    const command =
      block.language === 'sh'
        ? ['bash', '-euo', 'pipefail', '-c', code]
        : [process.execPath, ...staged(stage), write(folder, code)];
    const cwd = block.language === 'sh' ? ROOT : folder;
    const { failure, stdout, stderr } = await execute(command, cwd, env);
    const said = `${stdout}${stderr}`;
    assert.equal(failure, undefined, `${block.page}:${block.line}: ${failure}\n${said}`);
    return stdout;
  } finally {
    removeFolder(folder);
  }
}

function staged(stage?: string): string[] {
  return stage === undefined ? [] : ['--import', join(ROOT, stage)];
}

/** Writes the program of a block, as a module unless it has `require`, and answers its file. */
function write(folder: string, code: string): string {
  const kind = /\brequire\(/.test(code) ? 'cjs' : 'mjs';
  const file = join(folder, `block.${kind}`);
  writeFileSync(file, toJavaScript(code));
  return file;
}

/** Node 20 knows neither types nor `await using`. */
function toJavaScript(code: string): string {
  const { ESNext } = ts.ModuleKind;
  const compilerOptions = {
    module: ESNext,
    target: ts.ScriptTarget.ES2022,
    // As in a service with Nest.
    experimentalDecorators: true,
    emitDecoratorMetadata: true,
  };
  return ts.transpileModule(code, { compilerOptions }).outputText;
}

interface Executed {
  readonly failure: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

function execute(
  [program = '', ...args]: string[],
  cwd: string,
  more: Readonly<Record<string, string>>,
): Promise<Executed> {
  // A runner of tests that is started by another would report to it instead of running.
  const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, ...more };
  return new Promise((resolve) => {
    execFile(program, args, { cwd, env, timeout: PATIENCE_MS }, (error, stdout, stderr) => {
      const failure = error === null ? undefined : `ended with ${error.code ?? error.signal}`;
      resolve({ failure, stdout, stderr });
    });
  });
}

/** Checks that each `console.log` prints the text behind it. */
function comparePrinted({ page, line, code }: Block, stdout: string): void {
  const said = Array.from(
    code.matchAll(/console\.log\(.*\)\s*\/\/ (.+)$/gm),
    ([, text]) => text ?? '',
  );
  if (said.length === 0) return;
  const printed = stdout.trimEnd().split('\n');
  const where = `${page}:${line} prints\n${stdout}`;
  assert.equal(printed.length, said.length, where);
  printed.forEach((text, index) => {
    const parts = (said[index] ?? '').split('…').map((part) => part.replace(/[^\w\s]/g, '\\$&'));
    assert.match(text, new RegExp(`^${parts.join('.*')}$`), where);
  });
}
