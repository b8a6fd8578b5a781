/** A short campaign, and violations that it must find. `npm run torture` runs a long one. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { removeFolder } from '../../support/folders.js';
import { leftovers, type Place } from './places/place.js';
import { PLACES } from './places.js';
import { playRound } from './round.js';

interface Ended {
  readonly code: number | null;
  readonly said: string;
}

function campaign(...flags: readonly string[]): Promise<Ended> {
  const args = ['--enable-source-maps', join(__dirname, 'main.js'), ...flags];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      said += chunk;
    });
  }
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, said })));
}

function single(): Promise<Place> {
  return (PLACES['single'] as () => Promise<Place>)();
}

test('a short campaign keeps every promise, and one without fences sees stale writes', async (t) => {
  const { code, said } = await campaign('--minutes', '0.1', '--only', 'single');
  for (const line of said.trim().split('\n')) t.diagnostic(line);
  assert.match(said, /violations +0$/m);
  assert.match(said, /leftovers +0$/m);
  assert.match(said, /stale writes without a fence +[1-9]/);
  assert.equal(code, 0);
});

test('a server that forgets locks, and nobody confesses it: the round says who met', async () => {
  const forgetful = async (): Promise<Place> => {
    const place = await single();
    const [server] = await place.servers();
    const forget = {
      kind: 'forgotten in secret',
      cause: async () =>
        void (await server?.admin.del(...place.names.map((name) => `lock:${name}`))),
    };
    return { ...place, faults: [forget] };
  };
  const plan = { where: 'single', seed: 1, seconds: 6, unfenced: false };
  const { problems, folder, left, stores } = await playRound(plan, forgetful);
  assert.deepEqual(await left, []);
  assert.match(problems.join('\n'), /(not alone|over \d): p\d+/);
  assert.equal(stores.stale, 0, 'the fences hold all the same');
  removeFolder(folder);
});

test('what is left behind is told, with its name', async () => {
  const place = await single();
  try {
    const [server] = await place.servers();
    await server?.admin.set('holdfast:fence', 1);
    assert.deepEqual(await leftovers(place, 0), []);
    await server?.admin.set('lock:a', 'hf1.nobody.1', 'PX', 60_000);
    assert.deepEqual(await leftovers(place, 0), ['left behind: lock:a']);
    await server?.admin.rename('lock:a', '{lock:a}:fence');
    assert.deepEqual(await leftovers(place, 0), ['left behind: {lock:a}:fence']);
    // On a quorum each lock has a counter, which ends.
    const quorum = { ...place, quorum: true };
    assert.deepEqual(await leftovers(quorum, 0), ['left behind: holdfast:fence']);
    await server?.admin.del('holdfast:fence');
    assert.deepEqual(await leftovers(quorum, 0), []);
    await server?.admin.persist('{lock:a}:fence');
    assert.deepEqual(await leftovers(quorum, 0), ['{lock:a}:fence never ends']);
  } finally {
    await place.stop();
  }
});

test('flags that mean nothing are refused', async () => {
  for (const flags of [
    ['--only', 'moon'],
    ['--minutes', 'x'],
    ['--seed', '-1x'],
  ]) {
    assert.equal((await campaign(...flags)).code, 1);
  }
});
