// Runs the test files of the libraries that the drop-in packages replace, on the library and on the drop-in, and prints how
// many pass: node scripts/originals.mjs FOLDER
//
// FOLDER has a checkout of each library by the names below, with its dependencies installed and, where it has a build, built.
// Nothing of it is changed: each run takes a copy. The tests want Redis on the ports that they name.

import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const DIST = join(import.meta.dirname, '../dist/adapters');
const TIMEOUT_MS = 600_000;

const MOCHA = { passed: /(\d+) passing/, failed: /(\d+) failing/ };
const VITEST = { passed: /Tests .*?(\d+) passed/, failed: /Tests .*?(\d+) failed/ };
const AVA = { passed: /(\d+) tests? passed/, failed: /(\d+) (?:tests? failed|uncaught)/ };

/**
 * `folder`: of the checkout, if it has another name. `dropIn`: the files that the tests import, as they are on the drop-in.
 * `run`: program and arguments, in `at`.
 */
const SUITES = {
  redlock4: {
    dropIn: {
      'redlock.js': `module.exports = require(${JSON.stringify(join(DIST, 'redlock4/index.js'))});\n`,
    },
    run: ['npx', '--no-install', 'mocha', '--exit', '--timeout', '20000', 'test.js'],
    counts: MOCHA,
    from: 'redlock 4, as npm has it, with mocha, chai, bluebird, ioredis and redis 3 of its devDependencies',
  },
  redlock5: {
    dropIn: { 'dist/esm/index.js': reexport(join(DIST, 'redlock/index.mjs')) },
    at: 'dist/esm',
    run: [
      'npx',
      '--no-install',
      'ava',
      '--verbose',
      '--timeout=120s',
      'single.test.js',
      'multi.test.js',
    ],
    counts: AVA,
    from: 'the repository of redlock 5, built, with the servers of its docker-compose.yml',
  },
  'sesamecare system': sesamecare('system'),
  'sesamecare unit': sesamecare('unit'),
  'redis-semaphore': redisSemaphore(),
};

function sesamecare(suite) {
  return {
    folder: 'sesamecare',
    dropIn: { 'src/index.ts': reexport(join(DIST, 'redlock/index.mjs')) },
    run: ['npx', '--no-install', 'vitest', 'run', `src/${suite}.spec.ts`],
    counts: VITEST,
    from: 'the repository of @sesamecare-oss/redlock, with the servers of its docker-compose.yml',
  };
}

/** The tests of the classes that the drop-in has. Each class is imported by the file that it has in the original. */
function redisSemaphore() {
  const from = JSON.stringify(join(DIST, 'redis-semaphore/index.mjs'));
  const files = {
    RedisMutex: 'Mutex',
    RedisSemaphore: 'Semaphore',
    RedisMultiSemaphore: 'MultiSemaphore',
    RedlockMutex: 'RedlockMutex',
    'errors/LostLockError': 'LostLockError',
  };
  const tests = [...Object.keys(files).slice(0, 4), 'Lock'];
  const dropIn = {
    'src/index.ts': `export * from ${from};\n`,
    'src/Lock.ts': `export { Lock } from ${from};\n`,
  };
  for (const [file, name] of Object.entries(files)) {
    dropIn[`src/${file}.ts`] = `export { ${name} as default } from ${from};\n`;
  }
  return {
    dropIn,
    run: [
      'npx',
      '--no-install',
      'vitest',
      'run',
      ...tests.map((each) => `test/src/${each}.test.ts`),
    ],
    counts: VITEST,
    from: 'the repository of redis-semaphore with vitest, and servers on 6001 to 6003 that its test/shell.ts stops and starts',
  };
}

const [, , given] = process.argv;
if (given === undefined) {
  console.error('usage: node scripts/originals.mjs FOLDER, with checkouts in it:');
  for (const [name, { folder = name, from }] of Object.entries(SUITES)) {
    console.error(`  ${folder}  ${from}`);
  }
  process.exit(2);
}

console.log('| suite | original | drop-in |\n|---|---|---|');
for (const [name, suite] of Object.entries(SUITES)) {
  const checkout = join(resolve(given), suite.folder ?? name);
  if (existsSync(checkout)) {
    const cells = [await count(suite, checkout, false), await count(suite, checkout, true)];
    console.log(`| ${name} | ${cells.join(' | ')} |`);
  } else {
    console.log(`| ${name} | not there: ${suite.from} | |`);
  }
}

function reexport(module) {
  const from = JSON.stringify(module);
  return `export * from ${from};\nexport { default } from ${from};\n`;
}

/** How many tests of a suite pass, of how many. */
async function count({ dropIn, at = '.', run, counts }, checkout, isReplaced) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-originals-'));
  try {
    cpSync(checkout, folder, { recursive: true, verbatimSymlinks: true });
    for (const [file, text] of isReplaced ? Object.entries(dropIn) : []) {
      writeFileSync(join(folder, file), text);
    }
    const printed = await output(run, join(folder, at));
    const [passed, failed] = [counts.passed, counts.failed].map((each) => each.exec(printed)?.[1]);
    if (passed === undefined && failed === undefined) {
      console.error(printed.slice(-2_000));
      return 'did not run';
    }
    return `${passed ?? 0} of ${Number(passed ?? 0) + Number(failed ?? 0)}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The output of a program; a test that fails makes its exit code another than 0. */
function output([program, ...args], cwd) {
  return new Promise((ended) => {
    const env = { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0' };
    const options = { cwd, env, timeout: TIMEOUT_MS, maxBuffer: 2 ** 26 };
    execFile(program, args, options, (_, out, err) => ended(out + err));
  });
}
