// Which mistakes the compiler refuses: they could not be made, so they are not drawn.

import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from './copy.mjs';

const PROJECT = join(ROOT, 'js');

/** A compiler that keeps what it knows of the sources between two questions. */
export class Compiler {
  #changed = new Map();
  #versions = 0;
  #files;
  #service;

  constructor() {
    const { config } = ts.readConfigFile(join(PROJECT, 'tsconfig.json'), ts.sys.readFile);
    const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, PROJECT);
    this.#files = fileNames;
    this.#service = ts.createLanguageService({
      ...ts.sys,
      useCaseSensitiveFileNames: () => ts.sys.useCaseSensitiveFileNames,
      getCompilationSettings: () => options,
      getCurrentDirectory: () => PROJECT,
      getDefaultLibFileName: (each) => ts.getDefaultLibFilePath(each),
      getScriptFileNames: () => fileNames,
      getScriptSnapshot: (file) => {
        const text = this.#changed.get(file) ?? ts.sys.readFile(file);
        return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
      },
      getScriptVersion: (file) => (this.#changed.has(file) ? String(this.#versions) : '0'),
    });
  }

  /** Whether it refuses the file of a mistake; with `everywhere` also any other for its sake, which takes seconds. */
  refuses(mistake, { everywhere = false } = {}) {
    const file = join(ROOT, mistake.file);
    this.#versions += 1;
    this.#changed.set(file, mistake.madeIn());
    try {
      const files = everywhere ? this.#files : [file];
      return files.some((each) => this.#errorsOf(each) > 0);
    } finally {
      this.#changed.delete(file);
    }
  }

  #errorsOf(file) {
    const syntactic = this.#service.getSyntacticDiagnostics(file);
    return syntactic.length + this.#service.getSemanticDiagnostics(file).length;
  }
}
