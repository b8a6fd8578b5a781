/** The image of examples/docker: its steps, one by one, in the file system of musl, as no Docker is needed for them. */

import assert from 'node:assert/strict';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Packed, succeeds } from '../package/packed.js';
import { ROOT } from '../support/child.js';
import { fetched } from '../support/fetched.js';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { PLATFORMS, PlatformRoot } from './roots.js';

const ADDONS = process.env['HOLDFAST_ADDONS'] ?? join(ROOT, 'target', 'portable', 'addons');
const EXAMPLE = join(ROOT, 'examples', 'docker');
const MUSL = PLATFORMS.find(({ addon }) => addon === 'linux-x64-musl');
const ADDON = '@holdfast/addon-linux-x64-musl';

let server: RedisServer;
let packed: Packed;
let stages: string;
let npm: string;

before(async () => {
  server = await RedisServer.start();
  packed = await Packed.start(ADDONS);
  stages = mkdtempSync(join(tmpdir(), 'holdfast-image-'));
  npm = await fetched('npm@11', 'bin/npm-cli.js');
});

after(async () => {
  await server.stop();
  await packed.stop();
  removeFolder(stages);
});

interface Image {
  readonly folder: string;
  readonly command: readonly string[];
}

/** Runs the steps that the example uses; the folder of a stage stands for its WORKDIR. */
async function build(context: string, root: PlatformRoot): Promise<Image> {
  const ignored = readFileSync(join(context, '.dockerignore'), 'utf8').trim().split('\n');
  const folders = new Map<string, string>();
  let folder = '';
  let command: string[] = [];
  for (const line of readFileSync(join(context, 'Dockerfile'), 'utf8').trim().split('\n')) {
    const [instruction = '', ...words] = line.split(/\s+/);
    if (instruction === 'FROM') {
      folder = join(stages, String(folders.size));
      mkdirSync(folder);
      folders.set(words[2] ?? 'last', folder);
    } else if (instruction === 'COPY') {
      copy(words, context, ignored, folder, folders);
    } else if (instruction === 'RUN') {
      const [program = '', ...args] = words;
      assert.equal(program, 'npm');
      await root.runs('node', [npm, ...args], folder, packed.environment(folder));
    } else if (instruction === 'CMD') {
      command = JSON.parse(words.join(' '));
    } else if (instruction !== '') {
      assert.match(instruction, /^(WORKDIR|ENV|USER)$/);
    }
  }
  return { folder, command };
}

function copy(
  words: readonly string[],
  context: string,
  ignored: readonly string[],
  folder: string,
  folders: ReadonlyMap<string, string>,
): void {
  const stage = words[0]?.startsWith('--from=') ? words[0].slice('--from='.length) : undefined;
  const sources = words.slice(stage === undefined ? 0 : 1, -1);
  for (const source of sources) {
    if (stage !== undefined) {
      const from = join(folders.get(stage) ?? '', source.replace('/service/', ''));
      cpSync(from, join(folder, source.replace('/service/', '')), { recursive: true });
    } else {
      const names = source === '.' ? readdirSync(context) : [source];
      for (const name of names.filter((each) => !ignored.includes(each))) {
        cpSync(join(context, name), join(folder, name), { recursive: true });
      }
    }
  }
}

test('the steps of the Dockerfile install the addon for musl, and the service takes locks', async () => {
  assert.ok(MUSL !== undefined && existsSync(join(ADDONS, `holdfast.${MUSL.addon}.node`)));
  const root = await PlatformRoot.of(MUSL);
  const context = packed.project('context');
  cpSync(EXAMPLE, context, { recursive: true });
  // As a developer's machine has it: the lock file, and a node_modules of another platform.
  const install = [npm, 'install', '--no-audit', '--no-fund'];
  await succeeds(process.execPath, install, context, packed.environment(context));
  packed.registry.fetched.clear();
  const { folder, command } = await build(context, root);
  assert.deepEqual(
    [...packed.registry.fetched].filter((name) => name.includes('/addon-')),
    [ADDON],
  );
  assert.deepEqual(readdirSync(join(folder, 'node_modules', '@holdfast')), [
    ADDON.slice('@holdfast/'.length),
  ]);
  const [program = '', ...args] = command;
  // The service is asked once, told to end as docker stop does, and ends by itself.
  writeFileSync(join(folder, 'ask.mjs'), ASK);
  const env = { REDIS_URL: server.url, PORT: '0' };
  assert.equal(program, 'node');
  assert.match(
    await root.runs('node', ['ask.mjs', ...args], folder, env),
    /^answered \d+, ended 0$/m,
  );
});

const ASK = `import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
const child = spawn(process.execPath, process.argv.slice(2), { stdio: ['ignore', 'pipe', 'inherit'] });
createInterface(child.stdout).once('line', async (line) => {
  const response = await fetch('http://127.0.0.1:' + /\\d+$/.exec(line)[0] + '/');
  const answer = (await response.text()).trim();
  child.kill('SIGTERM');
  child.once('exit', (code) => console.log('answered ' + answer + ', ended ' + code));
});
`;
