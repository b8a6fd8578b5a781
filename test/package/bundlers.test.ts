/** The installed package in bundles. docs/platforms.md has what each bundler needs. */

import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fetched, fetchedFolder } from '../support/fetched.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;
let folder: string;
let esbuild: string;

const PROGRAM = `async function main() {
  const { connect } = require('holdfast');
  const locks = await connect('memory:');
  const lock = await locks.acquire('item:42');
  console.log(lock.held, await lock.release());
  await locks.close();
}
main().catch((error) => console.log(error.name, error.code, error.message));
`;

/** Serves the page from the bundle, and asks for its files and its events. The two halves differ in how they import. */
const SERVES = `
async function main() {
  const locks = await connect('memory:');
  const ui = lockUi({ locks });
  const server = createServer((request, response) => ui(request, response));
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const base = 'http://127.0.0.1:' + server.address().port + '/';
  const said = [];
  for (const name of ['', 'app.mjs', 'shared.mjs', 'style.css', 'none.css']) {
    const answer = await fetch(base + name);
    said.push(answer.status, (await answer.text()).length > 100);
  }
  const events = await fetch(base + 'events');
  const { value } = await events.body.getReader().read();
  said.push(new TextDecoder().decode(value).startsWith('event: hello'));
  console.log(said.join());
  ui.close();
  server.closeAllConnections();
  server.close();
  await locks.close();
}
main().catch((error) => console.log(error));
`;
const SERVED = '200,true,200,true,200,true,200,true,404,false,true\n';
const PAGE_CJS = `const { createServer } = require('node:http');
const { connect } = require('holdfast');
const { lockUi } = require('holdfast/ui');
${SERVES}`;
const PAGE_ESM = `import { createServer } from 'node:http';
import { connect } from 'holdfast';
import { lockUi } from 'holdfast/ui';
${SERVES}`;
const REQUIRE =
  "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";

/** The entry points beside the main one that need nothing but the package. */
const BESIDE = `console.log(
  typeof require('holdfast/redlock').default,
  typeof require('holdfast/redlock4'),
  typeof require('holdfast/redis-semaphore').Mutex,
  typeof require('holdfast/fence').checkFence,
  typeof require('holdfast/idempotency').memoryStore,
  typeof require('holdfast/bullmq').oneAtATime,
  typeof require('holdfast/node-cron').runCoordinator,
);
`;

before(async () => {
  packed = await Packed.start();
  folder = await packed.installed('bundled');
  writeFileSync(join(folder, 'shop.js'), PROGRAM);
  writeFileSync(join(folder, 'beside.js'), BESIDE);
  writeFileSync(join(folder, 'page.js'), PAGE_CJS);
  writeFileSync(join(folder, 'page.mjs'), PAGE_ESM);
  esbuild = await fetched('esbuild@0.28', 'bin/esbuild');
});

after(() => packed.stop());

/** Bundles the program and answers the folder of the bundle. */
async function bundled(name: string, ...args: string[]): Promise<string> {
  const to = join(folder, name);
  await succeeds(
    esbuild,
    ['shop.js', 'beside.js', '--bundle', '--platform=node', `--outdir=${to}`, ...args],
    folder,
  );
  return to;
}

test('esbuild, with holdfast as an external dependency', async () => {
  const bundle = await bundled('external', '--external:holdfast');
  assert.equal(await succeeds(process.execPath, [join(bundle, 'shop.js')]), 'true true\n');
  const beside = readFileSync(join(bundle, 'beside.js'), 'utf8');
  assert.match(beside, /require\("holdfast\/redlock"\)/, 'not bundled');
  const said = await succeeds(process.execPath, [join(bundle, 'beside.js')]);
  assert.equal(said, `${Array(7).fill('function').join(' ')}\n`);
});

test('esbuild, with the addon copied beside the bundle, away from node_modules', async () => {
  const bundle = await bundled('copied', '--loader:.node=copy');
  const away = join(packed.folder, 'away');
  cpSync(bundle, away, { recursive: true });
  assert.equal(await succeeds(process.execPath, ['shop.js'], away), 'true true\n');
});

test('esbuild, with a path in place of the addon: the error says how to bundle', async () => {
  const bundle = await bundled('path', '--loader:.node=file');
  const said = await succeeds(process.execPath, [join(bundle, 'shop.js')]);
  assert.match(
    said,
    /^LockLoadError ERR_LOCK_NATIVE_LOAD .*--external:holdfast.*--loader:\.node=copy/,
  );
});

/** Runs a program of the bundler `spec`, and then the page in its bundle, where no package is if `away`. */
async function serves(
  [spec, program]: readonly [string, string],
  args: (to: string) => readonly string[],
  { file = 'page.js', away = true, node = process.execPath }: Serving = {},
): Promise<void> {
  const to = away ? join(packed.folder, `page-${tries++}`) : join(folder, `page-${tries++}`);
  await succeeds(process.execPath, [await fetched(spec, program), ...args(to)], folder);
  assert.equal(await succeeds(node, [join(to, file)], to), SERVED);
}

interface Serving {
  readonly file?: string;
  readonly away?: boolean;
  readonly node?: string;
}

let tries = 0;

/** A file of settings for a bundler. */
function settings(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

test('esbuild: the page is served from a bundle of either kind', async () => {
  const shared = ['--bundle', '--platform=node', '--loader:.node=copy'];
  const bundle = async (...args: string[]) => {
    const to = join(packed.folder, `page-${tries++}`);
    await succeeds(esbuild, [...shared, `--outdir=${to}`, ...args], folder);
    return to;
  };
  const common = await bundle('page.js');
  assert.equal(await succeeds(process.execPath, ['page.js'], common), SERVED);
  const esm = ['--format=esm', '--out-extension:.js=.mjs', `--banner:js=${REQUIRE}`];
  const modules = await bundle('page.mjs', ...esm);
  assert.equal(await succeeds(process.execPath, ['page.mjs'], modules), SERVED);
});

test('webpack: the page is served with the addon in the bundle, and with holdfast outside', async () => {
  const webpack = await fetchedFolder('webpack@5', 'webpack-cli@7', 'node-loader@2');
  const cli = join(webpack, 'node_modules', 'webpack-cli', 'bin', 'cli.js');
  const run = async (name: string, more: string, away: boolean, entry = './page.js') => {
    const to = join(away ? packed.folder : folder, name);
    const config = `module.exports = { mode: 'production', target: 'node', context: ${JSON.stringify(folder)},
      entry: '${entry}', resolveLoader: { modules: [${JSON.stringify(join(webpack, 'node_modules'))}] },
      output: { path: ${JSON.stringify(to)}, filename: 'page.js' }, ${more} }`;
    const args = [cli, '--config', settings(`webpack-${name}.cjs`, config)];
    await succeeds(process.execPath, args, webpack);
    assert.equal(await succeeds(process.execPath, ['page.js'], to), SERVED);
  };
  await run('with', "module: { rules: [{ test: /\\.node$/, loader: 'node-loader' }] }", true);
  const externals = "externals: [/^holdfast(\\/|$)/], externalsType: 'commonjs'";
  await run('without', externals, false);
});

test('rollup and rolldown: the page is served with holdfast outside', async () => {
  const config = "export default { external: [/^node:/, /^holdfast(\\/|$)/], input: 'page.mjs' }";
  const path = settings('rollup.config.mjs', config);
  const args = (to: string) => ['-c', path, '-d', to, '--entryFileNames', '[name].mjs'];
  const serving = { file: 'page.mjs', away: false };
  await serves(['rollup@4', 'dist/bin/rollup'], args, serving);
  const own = (to: string) => ['-c', path, '-d', to, '--entry-file-names', '[name].mjs'];
  await serves(['rolldown@1', 'bin/cli.mjs'], own, serving);
});

test('vite: the page is served by a build for servers', async () => {
  const away = { file: 'page.mjs', away: false };
  const args = (to: string) => ['build', '--ssr', 'page.mjs', '--outDir', to];
  await serves(['vite@8', 'bin/vite.js'], args, away);
  const ssr = "export default { ssr: { noExternal: true, external: ['holdfast'] } }";
  const path = settings('vite.config.mjs', ssr);
  await serves(['vite@8', 'bin/vite.js'], (to) => [...args(to), '--config', path], away);
});

test('ncc: the page is served from the bundle', async () => {
  const args = (to: string) => ['build', 'page.js', '-o', to];
  await serves(['@vercel/ncc@0.45', 'ncc/cli.js'], args, { file: 'index.js' });
});

test('bun build: the page is served with holdfast outside, by Node and by Bun', async () => {
  const bun = await fetched('bun@1', 'bin/bun');
  for (const [target, runtime] of [
    ['node', process.execPath],
    ['bun', bun],
  ] as const) {
    const to = join(folder, `bun-${target}`);
    const args = [
      'build',
      'page.mjs',
      `--target=${target}`,
      '--external=holdfast',
      `--outdir=${to}`,
    ];
    await succeeds(bun, args, folder);
    assert.equal(await succeeds(runtime, [join(to, 'page.js')], to), SERVED);
  }
});
