/** A manager in the place of `navigator.locks`: a program that uses it sees no difference. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { RedisServer } from '../../support/server.js';
import { CASES, DIFFERENT } from './cases.js';
import { nodeWithWebLocks } from './node.js';

const run = promisify(execFile);

interface Compared {
  readonly title: string;
  readonly theirs: unknown;
  readonly ours: unknown;
}

async function compareOn(url: string): Promise<Map<string, Compared>> {
  const program = join(__dirname, 'compare.js');
  const { stdout } = await run(await nodeWithWebLocks(), [program, url]);
  const lines = stdout.trim().split('\n');
  return new Map(
    lines.map((line) => {
      const compared = JSON.parse(line) as Compared;
      return [compared.title, compared];
    }),
  );
}

for (const where of ['memory:', 'a server'] as const) {
  describe(`as navigator.locks, on ${where}`, () => {
    let results: Map<string, Compared>;

    before(async () => {
      if (where === 'memory:') {
        results = await compareOn(where);
        return;
      }
      const server = await RedisServer.start();
      results = await compareOn(server.url).finally(() => server.stop());
    });

    for (const title of CASES.keys()) {
      test(title, () => {
        const compared = results.get(title);
        assert.ok(compared !== undefined, 'it was not tried');
        assert.deepEqual(compared.ours, compared.theirs);
      });
    }
    for (const [title, [, ours]] of DIFFERENT) {
      test(`it differs: ${title}`, () => {
        const compared = results.get(title);
        assert.deepEqual(compared?.ours, ours);
        assert.notDeepEqual(compared?.theirs, ours, 'it differs no more');
      });
    }
  });
}
