/** Histories, judged by the published checker of `tools/judge`: those that are kept, and fresh ones. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { removeFolder } from '../../support/folders.js';
import { needs } from '../../support/tools.js';
import { defective } from './defects.js';
import type { Place } from './places/place.js';
import { PLACES } from './places.js';
import { publish } from './record.js';
import { playRound } from './round.js';
import { recordSnippet } from './snippet.js';

// It builds the checker.
needs('rust');

const ROOT = join(__dirname, '..', '..', '..', '..');
const KEPT = join(ROOT, 'tools', 'judge', 'histories');

/** What the judge says of the histories at `path`. */
function judge(path: string): Promise<{ readonly code: number | null; readonly said: string }> {
  const child = spawn(process.execPath, [join(ROOT, 'scripts', 'judge.mjs'), path]);
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      said += chunk;
    });
  }
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, said })));
}

test('the kept histories are what their names say', async () => {
  const { code, said } = await judge(KEPT);
  assert.equal(code, 1, said);
  assert.match(said, /clean\.jsonl: linearizable/);
  assert.match(said, /broken\.jsonl: NOT LINEARIZABLE/);
  assert.match(said, /snippet\.jsonl: NOT LINEARIZABLE/);
  assert.equal((await judge(join(KEPT, 'clean.jsonl'))).code, 0);
});

describe('fresh histories', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-histories-'));
  after(() => removeFolder(folder));

  /** A short round; nobody waits until its servers have forgotten the dead. */
  const play = async (where: string, open: () => Promise<Place>) => {
    const briefly = async () => ({ ...(await open()), servers: async () => [] });
    const plan = { where, seed: 1, seconds: 4, unfenced: false, history: folder };
    const round = await playRound(plan, briefly);
    await round.left;
    return round;
  };

  before(async () => {
    const rounds = [
      play('persistent', PLACES['persistent'] as () => Promise<Place>),
      play('fence-again', () => defective('fence-again')),
    ];
    for (const { folder: journals } of await Promise.all(rounds)) {
      removeFolder(journals);
    }
    publish(folder, 'snippet', 'SET NX PX', await recordSnippet(1));
  });

  test('a round under faults is linearizable', async () => {
    const { code, said } = await judge(join(folder, 'persistent-1.jsonl'));
    assert.equal(code, 0, said);
    assert.ok(Number(/, (\d+) holds/.exec(said)?.[1]) > 50, said);
  });

  test('a seeded defect of the scripts is found', async () => {
    const { code, said } = await judge(join(folder, 'fence-again-1.jsonl'));
    assert.equal(code, 1, said);
    assert.match(said, /no order explains/);
  });

  test('SET NX PX is not a lock when the work outlasts the lease', async () => {
    const { code, said } = await judge(join(folder, 'snippet.jsonl'));
    assert.equal(code, 1, said);
  });
});
