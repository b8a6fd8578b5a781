/** Compiles blocks of TypeScript with `strict`, each as a program of its own. */

import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import type { Block } from './blocks.js';

const OPTIONS: ts.CompilerOptions = {
  emitDecoratorMetadata: true,
  experimentalDecorators: true,
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.esnext.disposable.d.ts'],
  module: ts.ModuleKind.NodeNext,
  noEmit: true,
  skipLibCheck: true,
  strict: true,
  target: ts.ScriptTarget.ES2022,
  types: ['node'],
};

/** What the blocks get without asking for it. */
const GIVEN = join(ROOT, 'test', 'docs', 'stage.d.mts');

/** What the compiler says of blocks, each with its page and line. */
export function problemsOf(blocks: readonly Block[]): string[] {
  const parent = join(ROOT, 'build', 'docs');
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, 'types-'));
  try {
    const files = new Map(blocks.map((block, index) => [join(folder, `${index}.mts`), block]));
    for (const [file, { code }] of files) writeFileSync(file, scoped(code));
    const program = ts.createProgram([...files.keys(), GIVEN], OPTIONS);
    return ts.getPreEmitDiagnostics(program).map((problem) => describe(problem, files));
  } finally {
    removeFolder(folder);
  }
}

/** Its own declarations stand above those that it is given, and it may return; its lines stay where they are. */
function scoped(code: string): string {
  const imports = code.match(/^import .*$/gm) ?? [];
  return `${imports.join(';')};export {};async () => {\n${code.replace(/^import .*$/gm, '')}}`;
}

function describe(problem: ts.Diagnostic, files: ReadonlyMap<string, Block>): string {
  const text = ts.flattenDiagnosticMessageText(problem.messageText, '\n');
  const { file, start = 0 } = problem;
  const block = files.get(file?.fileName ?? '');
  if (file === undefined || block === undefined) return `${file?.fileName}: ${text}`;
  return `${block.page}:${block.line + file.getLineAndCharacterOfPosition(start).line}: ${text}`;
}
