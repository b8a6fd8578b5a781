/**
 * Bundles what is published: a file for each entry, and few that the entries share. `require` finds, reads and compiles
 * each file by itself, and would take twice as long for the forty sources of the main entry.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig, rolldown } from 'rolldown';

const ENTRIES = [
  'adapters/bullmq/index',
  'fence/index',
  'adapters/idempotency/index',
  'index',
  'adapters/nest/index',
  'adapters/node-cron/index',
  'metrics/opentelemetry',
  'metrics/prometheus',
  'adapters/redis-semaphore/index',
  'adapters/redlock/index',
  'adapters/redlock4/index',
  'operators/page/index',
];
const CLI = 'operators/cli/main';
/** The entry for the tests, which is not published. */
const INTERNALS = 'internals';

/**
 * One file, though several entries share its parts: a value of another file is read by a getter, which costs a lock a
 * tenth of its instructions.
 */
const CORE =
  /[\\/]js[\\/](?:(?:acquire|connect|lead|lock|manager|native|once|request)[\\/]|base[\\/](?:names|tokens)\.ts$)/;

/** The files beside `dist`, and all packages. */
const OUTSIDE = [/native\/binding\.js$/, /package\.json$/, /^@?[a-z]/];

/**
 * Exports values in place of getters: no export of this package changes once its file is loaded, and a lock would pay for
 * forty getters.
 */
const valuesForGetters = {
  name: 'values-for-getters',
  generateBundle: (_options, bundle) => {
    for (const file of Object.values(bundle))
      file.code = file.code.replaceAll(GETTER, 'exports.$1 = $2;');
  },
};
const GETTER =
  /Object\.defineProperty\(exports, "(\w+)", \{\s+enumerable: true,\s+get: function\(\) \{\s+return ([\w$]+);\s+\}\s+\}\);/g;

const TO_DIST = { platform: 'node', tsconfig: 'js/tsconfig.json', output: { dir: 'dist' } };

const commonJs = {
  ...TO_DIST,
  input: sources([...ENTRIES, CLI, INTERNALS], 'ts'),
  external: OUTSIDE,
  preserveEntrySignatures: 'allow-extension',
  plugins: [valuesForGetters],
  transform: { define: { PAGE_FILES: JSON.stringify(await pageFiles()) } },
  // The entry `redlock` has a default export beside named ones, as redlock 5 has.
  checks: { mixedExports: false },
  output: {
    ...TO_DIST.output,
    cleanDir: true,
    // As deep as the sources, which name what lies beside `dist` by relative paths.
    chunkFileNames: 'shared/[name].js',
    entryFileNames: '[name].js',
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [{ name: 'core', test: CORE }],
    },
    esModule: true,
    format: 'cjs',
    keepNames: true,
    strict: true,
  },
};

/** They hand on what the CommonJS entries export. */
const modules = {
  ...TO_DIST,
  input: sources(ENTRIES, 'mts'),
  external: [/^\.\/(index|opentelemetry|prometheus)\.js$/],
  output: { ...TO_DIST.output, entryFileNames: '[name].mjs', format: 'es' },
};

export default defineConfig([commonJs, modules]);

/** The texts of the page's files, which travel in the code; one is the module that they share with the command line. */
async function pageFiles() {
  const names = readdirSync('ui');
  const texts = names.map((name) => [name, readFileSync(`ui/${name}`, 'utf8')]);
  const shared = await rolldown({ input: 'js/operators/page/shared.ts', platform: 'browser' });
  const { output } = await shared.generate({ format: 'es' });
  return Object.fromEntries([...texts, ['shared.mjs', output[0].code]]);
}

function sources(entries, extension) {
  return Object.fromEntries(entries.map((entry) => [entry, `js/${entry}.${extension}`]));
}
