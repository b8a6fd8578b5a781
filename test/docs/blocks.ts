/** The blocks of code in the documentation: what is shown to users must run. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../support/child.js';

/** A fenced block of a page. */
export interface Block {
  /** The page, from the root of the repository. */
  readonly page: string;
  /** Where its fence stands. */
  readonly line: number;
  /** The first word behind the fence, such as `ts`; empty if there is none. */
  readonly language: string;
  readonly code: string;
}

/** Every page that users read: the README, and what lies directly in docs. */
export function pages(): string[] {
  const docs = readdirSync(join(ROOT, 'docs')).filter((file) => file.endsWith('.md'));
  return ['README.md', ...docs.sort().map((file) => `docs/${file}`)];
}

/** Every block of a page, such as `docs/guide.md`, in order. */
export function blocksOf(page: string): Block[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return Array.from(text.matchAll(/^```(\S*)[^\n]*\n(.*?)^```$/gms), (found) => {
    const [, language = '', code = ''] = found;
    const line = text.slice(0, found.index).split('\n').length;
    return { page, line, language, code };
  });
}
