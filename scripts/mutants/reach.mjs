// Which tests reach which mistakes: each file of tests runs once with all mistakes switched off, and its processes write
// what they reach. That is kept in target/mutants/reached for as long as the file of tests stays the same, and used for
// sources that have changed as well; remove the folder to find out anew.

import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { LONG } from '../long-tests.mjs';
import { ROOT } from './copy.mjs';
import { inLanes } from './lanes.mjs';
import { runTest, sharedFolder, TESTS } from './switched.mjs';

const KEPT = join(ROOT, 'target', 'mutants', 'reached');
/** A file that takes longer runs once more, beside few others and without hurry; and is left out if it takes too long again. */
const LIMIT_MS = 90_000;
const LAST_LIMIT_MS = 300_000;
/**
 * Those of `steps` break a feature off at each of its requests, which takes most of the time that a mistake has, as does the
 * build of a Next.js application. Examples import the package by its name, which is not the copy.
 */
const LEFT_OUT = [...LONG, 'platforms', 'steps/', 'operators/page/nextjs', 'docstrings'];

/**
 * The files of tests, `{ file, ms, reaches }`, where `reaches` tells whether one reaches a mistake; and those that are left
 * out: `{ file, why }`.
 */
export async function reachOfTests(mistakes) {
  mkdirSync(KEPT, { recursive: true });
  const list = keepList(mistakes);
  const { lackingFor } = await import(join(TESTS, 'support', 'tools.js'));
  const files = readdirSync(TESTS, { recursive: true })
    .filter((file) => file.endsWith('.test.js'))
    .filter((file) => !LEFT_OUT.some((start) => file.startsWith(start)))
    .filter((file) => lackingFor(join(TESTS, file)).length === 0)
    .sort();
  const first = await inLanes(files, (file) => measured(file, mistakes, list, LIMIT_MS));
  // A busy machine fails some, and more of those that many other tests need: a second failure is no accident.
  const again = ({ file, why, ...rest }) =>
    why === undefined ? { file, ...rest } : measured(file, mistakes, list, LAST_LIMIT_MS);
  const all = await inLanes(first, again, availableParallelism());
  return {
    tests: all.filter(({ why }) => why === undefined).map(withReach),
    leftOut: all.filter(({ why }) => why !== undefined),
  };
}

/** Keeps which mistakes there are now, and answers the name of that list. */
function keepList(mistakes) {
  const text = JSON.stringify(mistakes.map(({ key }) => key));
  const name = `list-${hashOf(text)}.json`;
  writeFileSync(join(KEPT, name), text);
  return name;
}

/** The mistakes that a file of tests reaches, or the reason to leave it out, which is not kept. */
async function measured(file, mistakes, list, limit) {
  const hash = hashOf(readFileSync(join(TESTS, file)));
  const kept = join(KEPT, `${file.replaceAll('/', '-')}-${hash}.json`);
  if (existsSync(kept)) return { file, ...JSON.parse(readFileSync(kept, 'utf8')) };
  const result = await measure(file, mistakes, list, limit);
  if (result.why === undefined) writeFileSync(kept, JSON.stringify(result));
  return { file, ...result };
}

/** Runs a file of tests. */
async function measure(file, mistakes, list, limit) {
  const folder = sharedFolder('reached-');
  const told = join(folder, 'ids');
  writeFileSync(told, '');
  chmodSync(told, 0o666);
  const { ended, ms } = await runTest(file, { MUTANTS_REACHED: told }, limit);
  const ids = new Set(readFileSync(told, 'utf8').split('\n'));
  rmSync(folder, { recursive: true });
  if (ended !== 'passed') return { why: ended };
  const reached = mistakes.filter(({ id }) => ids.has(id));
  return {
    ms: Math.round(ms),
    list,
    keys: reached.map(({ key }) => key),
    files: [...new Set(reached.map((mistake) => mistake.file))],
  };
}

/** A mistake that was not there when the file of tests ran is reached if its source is. */
function withReach({ file, ms, list, keys, files }) {
  const [reached, sources, known] = [new Set(keys), new Set(files), listed(list)];
  const reaches = (mistake) =>
    known.has(mistake.key) ? reached.has(mistake.key) : sources.has(mistake.file);
  return { file, ms, reaches };
}

const lists = new Map();

function listed(name) {
  if (!lists.has(name))
    lists.set(name, new Set(JSON.parse(readFileSync(join(KEPT, name), 'utf8'))));
  return lists.get(name);
}

function hashOf(text) {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}
