/** The scripts of the release workflow: what they refuse, what they state, and in which order they publish. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { fetched } from '../support/fetched.js';
import { removeFolder } from '../support/folders.js';
import { Packed, succeeds } from './packed.js';
import { Registry } from './registry.js';

const script = (name: string) => join(ROOT, 'scripts', 'release', name);
/** What GitHub tells a workflow, as far as it is stated. */
const GITHUB = {
  GITHUB_EVENT_NAME: 'push',
  GITHUB_REF: 'refs/tags/v1.2.3',
  GITHUB_REPOSITORY: 'someone/holdfast',
  GITHUB_REPOSITORY_ID: '12',
  GITHUB_REPOSITORY_OWNER_ID: '34',
  GITHUB_RUN_ATTEMPT: '1',
  GITHUB_RUN_ID: '56',
  GITHUB_SERVER_URL: 'https://github.com',
  GITHUB_SHA: '0123456789abcdef0123456789abcdef01234567',
  GITHUB_WORKFLOW_REF: 'someone/holdfast/.github/workflows/release.yml@refs/tags/v1.2.3',
  RUNNER_ENVIRONMENT: 'github-hosted',
};

let packed: Packed;
let registry: Registry;
let folder: string;

before(async () => {
  packed = await Packed.start();
});

after(() => packed.stop());

beforeEach(() => {
  folder = join(packed.folder, 'packages');
  removeFolder(folder);
  mkdirSync(folder);
  for (const file of [packed.addon, packed.main]) copyFileSync(file, join(folder, basename(file)));
});

const check = (...args: string[]) =>
  succeeds(process.execPath, [script('check.mjs'), folder, ...args]);

async function publish(): Promise<string> {
  const npmrc = join(packed.folder, 'publisher.npmrc');
  const { url } = registry;
  writeFileSync(npmrc, `registry=${url}\n${url.replace('http:', '')}:_authToken=none\n`);
  const env = { npm_config_userconfig: npmrc, npm_config_registry: url };
  return succeeds(process.execPath, [script('publish.mjs'), folder], ROOT, env);
}

test('a release is refused: another tag, a missing platform, the addon of another one, no repository', async () => {
  await assert.rejects(check('--tag', 'v0.0.0'), /the tag is v0\.0\.0, and the version/);
  await assert.rejects(check('--all'), /no tarball of .*@holdfast\/addon-win32-arm64-msvc/);
  const elsewhere = succeeds(process.execPath, [script('check.mjs'), folder], ROOT, GITHUB);
  await assert.rejects(elsewhere, /names the repository \S+, and is built in someone\/holdfast/);
  await replaceInAddon((addon) => addon.writeUInt16LE(183, 18));
  await assert.rejects(check(), /its addon is for linux-arm64-gnu/);
});

/** Packs the addon again, with some bytes changed. */
async function replaceInAddon(change: (addon: Buffer) => void): Promise<void> {
  const tarball = join(folder, basename(packed.addon));
  const unpacked = join(packed.folder, 'unpacked');
  mkdirSync(unpacked, { recursive: true });
  await succeeds('tar', ['-xzf', tarball], unpacked);
  const [file = ''] = (await succeeds('tar', ['-tzf', tarball])).match(/\S+\.node/) ?? [];
  const addon = readFileSync(join(unpacked, file));
  change(addon);
  writeFileSync(join(unpacked, file), addon);
  await succeeds('tar', ['-czf', tarball, 'package'], unpacked);
}

test('the platforms are published first, what is published is passed over, and nothing else than what was packed', async () => {
  registry = new Registry();
  await registry.start();
  try {
    await check();
    await publish();
    assert.deepEqual(registry.sent, [packed.addonName, 'holdfast']);
    assert.deepEqual(registry.package('holdfast').tarball, readFileSync(packed.main));
    assert.match(await publish(), /holdfast@\S+ is published already/);
    assert.equal(registry.sent.length, 2);
    const changed = readFileSync(packed.main);
    // The time in the header of gzip: the same files, and another digest.
    changed.writeUInt32LE(1, 4);
    writeFileSync(join(folder, basename(packed.main)), changed);
    await assert.rejects(publish(), /is not the pkg:npm\/holdfast@\S+ that was packed/);
    rmSync(join(folder, basename(packed.addon)));
    copyFileSync(packed.main, join(folder, basename(packed.main)));
    await assert.rejects(publish(), /missing: pkg:npm\/%40holdfast\/addon-/);
  } finally {
    await registry.stop();
  }
});

/** Prints what npm would have signed for a tarball: its own code, up to the call of Sigstore. */
const WOULD_SIGN = `const [provenance, sigstore, subject] = process.argv.slice(1);
require(sigstore);
require.cache[require.resolve(sigstore)].exports = { attest: async (payload) => { console.log(String(payload)); } };
require(provenance).generateProvenance([JSON.parse(subject)], {});`;

test('the statement is the one that npm signs when it publishes with provenance', async () => {
  const repository = {
    GITHUB_REPOSITORY: GITHUB.GITHUB_REPOSITORY,
    GITHUB_SERVER_URL: GITHUB.GITHUB_SERVER_URL,
  };
  const args = [
    'scripts/package.mjs',
    '--out',
    folder,
    '--addons',
    process.env['HOLDFAST_ADDONS'] ?? 'native',
  ];
  await succeeds(process.execPath, args, ROOT, repository);
  await succeeds(process.execPath, [script('check.mjs'), folder], ROOT, GITHUB);
  const ours = JSON.parse(readFileSync(join(folder, 'statement.json'), 'utf8'));
  const sha512 = createHash('sha512')
    .update(readFileSync(join(folder, basename(packed.addon))))
    .digest('hex');
  const version = packed.manifest.version;
  const subject = {
    name: `pkg:npm/${packed.addonName.replace('@', '%40')}@${version}`,
    digest: { sha512 },
  };
  const npm = dirname(dirname(await fetched('npm@11', 'bin/npm-cli.js')));
  const libraries = ['libnpmpublish/lib/provenance.js', 'sigstore'].map((name) =>
    join(npm, 'node_modules', name),
  );
  const words = ['-e', WOULD_SIGN, ...libraries, JSON.stringify(subject)];
  const env = { ...GITHUB, GITHUB_ACTIONS: 'true' };
  const theirs = JSON.parse(await succeeds(process.execPath, words, ROOT, env));
  assert.deepEqual(
    ours.subject.find(({ name }: { name: string }) => name === subject.name),
    subject,
  );
  assert.deepEqual({ ...ours, subject: [subject] }, theirs);
});
