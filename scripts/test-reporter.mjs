// The report of Node's own runner, and at its end every test that was skipped, with its reason.

import { Readable } from 'node:stream';
import { spec as Spec } from 'node:test/reporters';

export default async function* report(source) {
  const skipped = [];
  async function* watched() {
    for await (const event of source) {
      const { name, skip } = event.data;
      if (event.type === 'test:pass' && skip !== undefined) skipped.push(`  ${name}: ${skip}`);
      yield event;
    }
  }
  yield* Readable.from(watched()).pipe(new Spec());
  if (skipped.length > 0) yield `skipped:\n${skipped.join('\n')}\n`;
}
