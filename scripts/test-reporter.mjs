// The report of Node's own runner; at a terminal how many files are left; and at its end what the tests have counted, the files
// that took longest, and every test that was skipped, with its reason.

import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { Readable } from 'node:stream';
import { spec as Spec } from 'node:test/reporters';

const root = join(import.meta.dirname, '..', 'build', 'test');

/** The reason of those that `--test-name-pattern` excludes. */
const NOT_ASKED_FOR = 'test name does not match pattern';

/** How a diagnostic begins that is repeated at the end. */
const COUNTED = /^(steps): /;

/** How many of the files that took longest are told. */
const SLOWEST = 10;

export default async function* report(source) {
  const skipped = [];
  const counted = [];
  /** How long the tests of each file took, in ms. */
  const times = new Map();
  /** The files that failed. A test names the file that registers it, which may be a helper. */
  const failed = [];
  const total = Number(process.env.HOLDFAST_TEST_FILES);
  async function* watched() {
    for await (const event of source) {
      const { name, skip = NOT_ASKED_FOR, message } = event.data;
      if (/^test:(pass|fail)$/.test(event.type) && event.data.nesting === 0) {
        const { file, details } = event.data;
        if (!times.has(file) && process.stdout.isTTY && total > 0) {
          const message = `${times.size + 1} of ${total} files have begun to report`;
          yield { type: 'test:diagnostic', data: { message, nesting: 0 } };
        }
        times.set(file, (times.get(file) ?? 0) + details.duration_ms);
      }
      // Each file is a test of the runner, with the path as its name.
      if (event.type === 'test:complete' && name.startsWith(root) && !event.data.details.passed)
        failed.push(name);
      if (event.type === 'test:diagnostic' && COUNTED.test(message)) counted.push(message);
      if (event.type === 'test:pass' && skip !== NOT_ASKED_FOR) skipped.push(`  ${name}: ${skip}`);
      yield event;
    }
  }
  yield* Readable.from(watched()).pipe(new Spec());
  if (counted.length > 0) yield `${counted.join('\n')}\n`;
  const slowest = [...times].sort(([, a], [, b]) => b - a).slice(0, SLOWEST);
  if (times.size > SLOWEST) {
    const lines = slowest.map(
      ([file, ms]) => `  ${Math.round(ms / 1000)} s  ${relative(root, file)}`,
    );
    yield `took longest:\n${lines.join('\n')}\n`;
  }
  if (process.env.HOLDFAST_TEST_TIMES)
    writeFileSync(process.env.HOLDFAST_TEST_TIMES, JSON.stringify([...times]));
  if (process.env.HOLDFAST_TEST_FAILED)
    writeFileSync(process.env.HOLDFAST_TEST_FAILED, JSON.stringify(failed));
  if (skipped.length > 0) yield `skipped:\n${skipped.join('\n')}\n`;
}
