// The cost before the first lock: loading the package, and the size of its addon.

import { execFile } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { judge } from '../outcome.mjs';
import { showRound } from '../progress.mjs';
import { median, shuffled } from '../samples.mjs';

const ROUNDS = 11;
const ROOT = join(import.meta.dirname, '..', '..');
const PACKAGES = [
  { id: 'holdfast', path: ROOT },
  { id: 'ioredis', path: join(import.meta.dirname, '..', 'node_modules', 'ioredis') },
  { id: 'redis', path: join(import.meta.dirname, '..', 'node_modules', 'redis') },
];

const ABOUT = `This section measures what a service pays once: the time to load the package, and the size of its addon.`;

export const LOAD = { id: 'load', about: ABOUT, run };

async function run() {
  const took = new Map(PACKAGES.map(({ id }) => [id, []]));
  for (let round = 0; round <= ROUNDS; round++) {
    showRound('load', round, ROUNDS);
    for (const { id, path } of shuffled(PACKAGES)) {
      const ms = await load(path);
      if (round > 0) took.get(id).push(ms);
    }
  }
  const [own] = PACKAGES;
  const native = join(ROOT, 'native');
  const [addon] = readdirSync(native).filter((file) => file.endsWith('.node'));
  const megabytes = statSync(join(native, addon)).size / 1e6;
  const lines = [
    'LOAD  require(), each in a new process',
    `rounds: ${ROUNDS} after a warm-up`,
    '',
    ...PACKAGES.map(
      ({ id }) => `${id.padEnd(24)}${median(took.get(id)).toFixed(1).padStart(7)} ms`,
    ),
    '',
    'Targets (medians of the rounds)',
    judge("require('holdfast')", median(took.get(own.id)), { atMost: 15, unit: ' ms' }, 1),
    judge('size of the addon, stripped', megabytes, { atMost: 4, unit: ' MB' }),
  ];
  return { lines, charts: [] };
}

async function load(path) {
  const source = `const begin = process.hrtime.bigint();
    require(${JSON.stringify(path)});
    console.log(Number(process.hrtime.bigint() - begin) / 1e6);
    process.exit();`;
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', source]);
  return Number(stdout);
}
