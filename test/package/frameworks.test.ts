/** The installed package in the test runners that services use. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;
let folder: string;

/** Several files, so that the runner has several threads or processes load the addon. */
const FILES = 4;

const SPEC = `
test('a service sells what it has', async () => {
  const locks = await connect('memory:');
  let stock = 3;
  const sell = () => locks.request('tea', async () => {
    const left = stock;
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (left > 0) stock = left - 1;
    return left > 0;
  });
  const sold = await Promise.all([sell(), sell(), sell(), sell(), sell()]);
  expect(sold.filter(Boolean)).toHaveLength(3);
  const other = await connect('memory:');
  await locks.acquire('tea');
  await expect(locks.acquire('tea', { wait: 0 })).rejects.toThrow(LockTimeoutError);
  await Promise.all([locks.close(), other.close()]);
});
`;

before(async () => {
  packed = await Packed.start();
  folder = await packed.installed('service');
  writeFileSync(join(folder, 'vitest.config.mjs'), VITEST);
  for (let i = 0; i < FILES; i++) {
    const requires = "const { connect, LockTimeoutError } = require('holdfast');";
    writeFileSync(join(folder, `${i}.jest.js`), `${requires}${SPEC}`);
    const imports = "import { connect, LockTimeoutError } from 'holdfast';";
    writeFileSync(join(folder, `${i}.vitest.mjs`), `${imports}${SPEC}`);
  }
});

const VITEST = "export default { test: { include: ['*.vitest.mjs'], globals: true } }";

after(() => packed.stop());

const program = (name: string, file: string) => join(ROOT, 'node_modules', name, file);

test('Jest, which then ends by itself', async () => {
  const jest = program('jest', join('bin', 'jest.js'));
  const args = ['--rootDir', folder, '--testMatch', '**/*.jest.js', '--maxWorkers', '2', '--json'];
  const said = await succeeds(process.execPath, [jest, ...args], folder);
  assert.equal(JSON.parse(said).numPassedTests, FILES);
});

for (const pool of ['forks', 'threads', 'vmThreads']) {
  test(`Vitest with its pool ${pool}`, async () => {
    const vitest = program('vitest', 'vitest.mjs');
    const args = ['run', '--root', folder, '--pool', pool, '--reporter', 'json'];
    const said = await succeeds(process.execPath, [vitest, ...args], folder);
    assert.equal(JSON.parse(said).numPassedTests, FILES);
  });
}
