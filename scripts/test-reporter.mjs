// The report of Node's own runner, and at its end what the tests have counted, and every test that was skipped, with its
// reason.

import { Readable } from 'node:stream';
import { spec as Spec } from 'node:test/reporters';

/** The reason of those that `--test-name-pattern` excludes. */
const NOT_ASKED_FOR = 'test name does not match pattern';

/** How a diagnostic begins that is repeated at the end. */
const COUNTED = /^(steps): /;

export default async function* report(source) {
  const skipped = [];
  const counted = [];
  async function* watched() {
    for await (const event of source) {
      const { name, skip = NOT_ASKED_FOR, message } = event.data;
      if (event.type === 'test:diagnostic' && COUNTED.test(message)) counted.push(message);
      if (event.type === 'test:pass' && skip !== NOT_ASKED_FOR) skipped.push(`  ${name}: ${skip}`);
      yield event;
    }
  }
  yield* Readable.from(watched()).pipe(new Spec());
  if (counted.length > 0) yield `${counted.join('\n')}\n`;
  if (skipped.length > 0) yield `skipped:\n${skipped.join('\n')}\n`;
}
