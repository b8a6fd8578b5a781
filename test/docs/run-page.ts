/** One test for each block of a page. A block that nothing runs fails. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Block, blocksOf } from './blocks.js';
import { runProgram, type Surroundings } from './programs.js';

/** Says why a block is not run here: what keeps it true instead, or why nothing can. */
export interface NotRun {
  readonly because: string;
}

/** Runs a block in a way of its own. */
export type Runner = (block: Block) => void | Promise<void>;

export interface PageOptions {
  /** Where its programs run; asked when the first one does, so a `before` can start servers. */
  readonly surroundings?: () => Surroundings;
  /**
   * Blocks that are no programs, or not whole ones, by words that stand in them. Words that no block of
   * the page has are an error, so this cannot go stale.
   */
  readonly otherwise?: Readonly<Record<string, Runner | NotRun>>;
}

const PROGRAMS = ['ts', 'js', 'sh'];
/** What is shown for people to look at. */
const NO_CODE = ['text'];

/**
 * Declares a test for each block of `page`, such as `docs/guide.md`: programs in `ts`, `js` and `sh` run
 * in processes of their own, `text` is none, and everything else must be told what to do with it.
 */
export function runPage(page: string, options: PageOptions = {}): void {
  const { surroundings = () => ({ env: {}, instead: {} }), otherwise = {} } = options;
  const used = new Set<string>();
  for (const block of blocksOf(page)) {
    if (NO_CODE.includes(block.language)) continue;
    const words = Object.keys(otherwise).find((each) => block.code.includes(each));
    const title = `${page}:${block.line} ${block.code.trim().split('\n')[0]}`;
    if (words !== undefined) used.add(words);
    const runner = words === undefined ? undefined : otherwise[words];
    if (runner !== undefined && typeof runner !== 'function') {
      test(`${title} (not run: ${runner.because})`, () => {});
      continue;
    }
    test(title, async () => {
      if (runner !== undefined) return runner(block);
      const known = PROGRAMS.includes(block.language);
      assert.ok(known, `nothing runs this block of ${page}; tell runPage what to do with it`);
      await runProgram(block, surroundings());
    });
  }
  test(`${page} has every block that its test speaks of`, () => {
    assert.deepEqual(
      Object.keys(otherwise).filter((each) => !used.has(each)),
      [],
    );
  });
}
