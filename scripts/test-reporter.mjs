// The report of Node's own runner, and at its end every test that was skipped, with its reason.

import { Readable } from 'node:stream';
import { spec as Spec } from 'node:test/reporters';

/** The reason of those that `--test-name-pattern` excludes. */
const NOT_ASKED_FOR = 'test name does not match pattern';

export default async function* report(source) {
  const skipped = [];
  async function* watched() {
    for await (const event of source) {
      const { name, skip = NOT_ASKED_FOR } = event.data;
      if (event.type === 'test:pass' && skip !== NOT_ASKED_FOR) skipped.push(`  ${name}: ${skip}`);
      yield event;
    }
  }
  yield* Readable.from(watched()).pipe(new Spec());
  if (skipped.length > 0) yield `skipped:\n${skipped.join('\n')}\n`;
}
