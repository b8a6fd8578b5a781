/** The package as npm would publish it for this platform, installed into an empty folder. */

import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { Packed, succeeds } from './packed.js';

let packed: Packed;
let folder: string;

const bin = (name: string) => join(ROOT, 'node_modules', '.bin', name);

before(async () => {
  packed = await Packed.start();
  folder = await packed.installed('service');
});

after(() => packed.stop());

test('publint finds nothing', async () => {
  await succeeds(bin('publint'), ['--strict', packed.main]);
});

test('arethetypeswrong finds nothing', async () => {
  await succeeds(bin('attw'), [packed.main, '--no-emoji', '--format', 'ascii']);
});

const list = async (tarball: string) =>
  (await succeeds('tar', ['-tzf', tarball])).trim().split('\n');

test('the main package has no sources, no addon, no scripts, and few dependencies', async () => {
  const folders = /^package\/(dist|monitoring)\//;
  const pages = /^package\/(docs\/([\w.-]+\.md|images\/[\w-]+\.(svg|png))|[A-Z][\w.-]+\.md)$/;
  const files = /^package\/(native\/binding\.js|LICENSE|package\.json)$/;
  for (const file of await list(packed.main))
    assert.ok(
      [folders, pages, files].some((each) => each.test(file)),
      file,
    );
  const { scripts, devDependencies, dependencies = {} } = packed.manifest as never as Manifest;
  assert.equal(scripts ?? devDependencies, undefined);
  // The parsers of the command line and of cron patterns, which have none of their own. Who uses neither loads neither.
  assert.deepEqual(Object.keys(dependencies), ['commander', 'croner']);
});

test('the pages that messages name are in the package', async () => {
  const files = await list(packed.main);
  const code = files
    .filter((file) => file.endsWith('.js'))
    .map((file) => file.slice('package/'.length));
  const texts = code.map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const named = texts.flatMap((text) => text.match(/(?<!\* .*|\/\/.*)docs\/[\w-]+\.md/g) ?? []);
  assert.ok(named.length > 0);
  for (const page of named) assert.ok(files.includes(`package/${page}`), page);
});

test('every link of its README leads to a file of the repository that its manifest names', async () => {
  const where = { GITHUB_SERVER_URL: 'https://github.com', GITHUB_REPOSITORY: 'owner/holdfast' };
  const out = packed.project('linked');
  await succeeds(process.execPath, ['scripts/package.mjs', '--out', out], ROOT, where);
  const tarball = join(out, basename(packed.main));
  const read = (file: string) => succeeds('tar', ['-xzOf', tarball, `package/${file}`]);
  const { homepage, bugs, repository } = JSON.parse(await read('package.json'));
  const home = 'https://github.com/owner/holdfast';
  assert.deepEqual(
    [homepage, bugs, repository.url],
    [`${home}#readme`, `${home}/issues`, `git+${home}.git`],
  );
  const links = Array.from(
    (await read('README.md')).matchAll(/\]\(([^)\s]+)\)/g),
    ([, to = '']) => to,
  );
  const ours = links.filter((link) => link.startsWith(home));
  assert.ok(ours.length > 20);
  for (const link of links) assert.match(link, /^(https:|#)/);
  for (const link of ours) {
    const [, path = ''] = /(?:blob|raw)\/v[^/]+\/([^#]+)/.exec(link) ?? [];
    assert.ok(existsSync(join(ROOT, path)), link);
  }
});

test('every link of its pages leads to a file in it, where no repository is known', async () => {
  const out = packed.project('unlinked');
  const nowhere = { GITHUB_REPOSITORY: undefined };
  await succeeds(process.execPath, ['scripts/package.mjs', '--out', out], ROOT, nowhere);
  const tarball = join(out, basename(packed.main));
  await succeeds('tar', ['-xzf', tarball, '-C', out]);
  const linksOf = (text: string) =>
    Array.from(text.matchAll(/\]\(([^)\s]+)\)|src="([^"]+)"/g), ([, to, src]) => to ?? src ?? '');
  for (const page of (await list(tarball)).filter((file) => file.endsWith('.md'))) {
    for (const link of linksOf(readFileSync(join(out, page), 'utf8'))) {
      const [path = ''] = link.split('#');
      if (!/^https?:|^$/.test(path))
        assert.ok(existsSync(join(out, dirname(page), path)), `${page} links to ${link}`);
    }
  }
  const [ours, theirs] = [join(ROOT, 'README.md'), join(out, 'package', 'README.md')].map(
    (file) => new Set(linksOf(readFileSync(file, 'utf8'))),
  ) as [Set<string>, Set<string>];
  // The examples are no pages: a reader finds them in the repository.
  assert.deepEqual(
    [...ours].filter((link) => !theirs.has(link)),
    ['examples'],
  );
});

interface Manifest {
  readonly scripts?: object;
  readonly devDependencies?: object;
  readonly dependencies?: object;
  readonly peerDependencies?: object;
}

test('its command line is installed, runs, and finds its parser', async () => {
  const server = await RedisServer.start();
  try {
    const installed = join(folder, 'node_modules', '.bin', 'holdfast');
    const words = ['run', 'packed', '--url', server.url, '--', 'echo', 'ran'];
    assert.equal(await succeeds(installed, words, folder), 'ran\n');
    assert.equal(await succeeds(installed, ['--version'], folder), `${packed.manifest.version}\n`);
  } finally {
    await server.stop();
  }
});

test('the package of a platform has its addon alone, of at most 4.1 MB', async () => {
  const files = await list(packed.addon);
  const texts = ['LICENSE', 'README.md', 'THIRD-PARTY.txt', 'package.json'];
  const others = texts.map((file) => `package/${file}`);
  const [addon = '', ...rest] = files.filter((file) => !others.includes(file));
  assert.match(addon, /^package\/holdfast\.[\w-]+\.node$/);
  assert.deepEqual(rest, []);
  const installed = join(folder, 'node_modules', packed.addonName, addon.slice('package/'.length));
  assert.ok(statSync(installed).size <= 4_100_000);
});

test('the licences of what is linked into the addon come along', async () => {
  const texts = await succeeds('tar', ['-xzOf', packed.addon, 'package/THIRD-PARTY.txt']);
  for (const name of ['redis', 'ring', 'ml-kem', 'mlua-sys', 'tokio']) {
    assert.match(texts, new RegExp(`^${name} \\d[\\d.]* \\(.+\\)$`, 'm'));
  }
  assert.match(texts, /Permission is hereby granted, free of charge/);
});

test('a release is tried by a script that installs the tarballs as they lie there', async () => {
  const tried = packed.project('tried');
  mkdirSync(join(tried, 'packages'));
  for (const tarball of [packed.addon, packed.main]) {
    copyFileSync(tarball, join(tried, 'packages', basename(tarball)));
  }
  const script = join(ROOT, 'scripts', 'release', 'try.sh');
  const said = await succeeds('sh', [script], tried, packed.environment(tried));
  assert.match(said, new RegExp(`^${process.platform} ${process.arch} \\d+$`, 'm'));
});

test('npm took the addon of this platform, and asked for no other', () => {
  const { fetched, missed } = packed.registry;
  assert.deepEqual(
    [...fetched].filter((name) => name.includes('/addon-')),
    [packed.addonName],
  );
  // npm reads what an optional peer would be, and installs none.
  const { peerDependencies = {} } = packed.manifest as never as Manifest;
  const peers = Object.keys(peerDependencies);
  assert.deepEqual(
    missed.filter((name) => !peers.includes(name)),
    [],
  );
  for (const peer of peers) assert.ok(!existsSync(join(folder, 'node_modules', peer)), peer);
});

test('its redlock works by import and by require, as the default and by name', async () => {
  const same =
    'console.log(new Set([Redlock, all.default ?? all, all.Redlock]).size, typeof Lock, ExecutionError.name)';
  const mjs = `import Redlock, * as all from 'holdfast/redlock';
    import { ExecutionError, Lock } from 'holdfast/redlock';${same}`;
  const cjs = `const all = require('holdfast/redlock');
    const { default: Redlock, ExecutionError, Lock } = all;${same}`;
  writeFileSync(join(folder, 'redlock.mjs'), mjs);
  writeFileSync(join(folder, 'redlock.cjs'), cjs);
  for (const file of ['redlock.mjs', 'redlock.cjs']) {
    const said = await succeeds(process.execPath, [file], folder);
    assert.equal(said, '1 function ExecutionError\n');
  }
});

test('its redlock4 and its redis-semaphore work by import and by require', async () => {
  const files = {
    'redlock4.mjs': `import Redlock, { Lock, Redlock as named } from 'holdfast/redlock4';
      console.log(named === Redlock, Lock === Redlock.Lock, new Redlock.LockError('x').name)`,
    'redlock4.cjs': `const Redlock = require('holdfast/redlock4');
      console.log(Redlock.Redlock === Redlock, typeof Redlock.Lock === 'function', new Redlock.LockError('x').name)`,
    'semaphore.mjs': `import { MultiSemaphore, Mutex, Semaphore, RedlockMutex, TimeoutError } from 'holdfast/redis-semaphore';
      console.log(Mutex.name === 'Mutex', new TimeoutError('') instanceof Error, 'LockError')`,
    'semaphore.cjs': `const { MultiSemaphore, Mutex, Semaphore, RedlockMutex, TimeoutError } = require('holdfast/redis-semaphore');
      console.log(Semaphore.name === 'Semaphore', new TimeoutError('') instanceof Error, 'LockError')`,
  };
  for (const [file, source] of Object.entries(files)) {
    writeFileSync(join(folder, file), source);
    const said = await succeeds(process.execPath, [file], folder);
    assert.equal(said, 'true true LockError\n', file);
  }
});

test('the page for operators is in the package, and its handler loads by import and by require', async () => {
  const files = readdirSync(join(ROOT, 'ui'));
  const size = files.reduce((sum, file) => sum + statSync(join(ROOT, 'ui', file)).size, 0);
  // Their plain bytes: the build puts the files into the code as they are, and a browser gets them as they are.
  assert.ok(size < 100_000, `${size} bytes`);
  const used = `connect('memory:').then(async (locks) => {
    const ui = lockUi({ locks });
    const end = (bytes) => console.log(String(bytes).includes('<table'));
    const response = { setHeader() {}, writeHead: (status) => response, end };
    ui({ url: '/', method: 'GET', headers: {} }, response);
    await locks.close();
  });`;
  const sources = {
    'ui.mjs': `import { connect } from 'holdfast'; import { lockUi } from 'holdfast/ui'; ${used}`,
    'ui.cjs': `const { connect } = require('holdfast'); const { lockUi } = require('holdfast/ui'); ${used}`,
  };
  for (const [file, source] of Object.entries(sources)) {
    writeFileSync(join(folder, file), source);
    assert.equal(await succeeds(process.execPath, [file], folder), 'true\n');
  }
});

test('its guards and its idempotency load by import and by require, without any driver or framework', async () => {
  const used = 'checkFence, fencedTransaction, expressIdempotency, fastifyIdempotency';
  const mjs = `import { checkFence, fencedTransaction } from 'holdfast/fence';
    import { expressIdempotency, fastifyIdempotency } from 'holdfast/idempotency';
    console.log(...[${used}].map((each) => typeof each))`;
  const cjs = `const { checkFence, fencedTransaction } = require('holdfast/fence');
    const { expressIdempotency, fastifyIdempotency } = require('holdfast/idempotency');
    console.log(...[${used}].map((each) => typeof each))`;
  writeFileSync(join(folder, 'guards.mjs'), mjs);
  writeFileSync(join(folder, 'guards.cjs'), cjs);
  for (const file of ['guards.mjs', 'guards.cjs']) {
    const said = await succeeds(process.execPath, [file], folder);
    assert.equal(said, 'function function function function\n');
  }
});

test('its module for Nest needs Nest, which nothing else loads', async () => {
  const cjs = `for (const entry of ['', '/fence', '/idempotency']) require('holdfast' + entry);
    try { require('holdfast/nest') } catch (error) { console.log(error.code, error.message.split("'")[1]) }`;
  writeFileSync(join(folder, 'nest.cjs'), cjs);
  const said = await succeeds(process.execPath, ['nest.cjs'], folder);
  assert.match(said, /^MODULE_NOT_FOUND (@nestjs\/common|rxjs)\n$/);
});

const LOAD = "try { require('holdfast') } catch (error) { console.log(error.code, error.message) }";

test('without its addon it says for which platform it has none, and what to do', async () => {
  const service = await packed.installed('no-addon');
  removeFolder(join(service, 'node_modules', packed.addonName));
  const said = await succeeds(process.execPath, ['-e', LOAD], service);
  const libc = process.platform === 'linux' ? ' \\((musl|glibc [\\d.]+)\\)' : '';
  const where = `${process.platform}-${process.arch}${libc}, Node ${process.version}`;
  assert.match(
    said,
    new RegExp(`^ERR_LOCK_NATIVE_LOAD holdfast cannot load its addon for ${where}`),
  );
  assert.match(said, new RegExp(`Cannot find module '${packed.addonName}'`));
  assert.match(said, /npm install --include=optional/);
});

test('a folder that was installed on another platform: it says on which, and what this one needs', async () => {
  const service = await packed.installed('copied');
  const { addonName } = packed;
  removeFolder(join(service, 'node_modules', addonName));
  mkdirSync(join(service, 'node_modules', '@holdfast', 'addon-darwin-arm64'), { recursive: true });
  const said = await succeeds(process.execPath, ['-e', LOAD], service);
  const [has, needs] = ['@holdfast/addon-darwin-arm64', addonName];
  assert.match(
    said,
    new RegExp(
      `needs ${needs}, which is missing: .* has ${has}, and was installed on that platform`,
    ),
  );
});

/** What a program says first to be on another platform. */
function disguise(platform: string, arch: string): string {
  const values = JSON.stringify({ platform: { value: platform }, arch: { value: arch } });
  return `Object.defineProperties(process, ${values});`;
}

for (const [platform, arch] of [
  ['freebsd', 'x64'],
  ['android', 'arm64'],
  ['linux', 'riscv64'],
  ['linux', 's390x'],
] as const) {
  test(`on ${platform}-${arch} it says that there is no addon, and where there is one`, async () => {
    const said = await succeeds(
      process.execPath,
      ['-e', `${disguise(platform, arch)}${LOAD}`],
      folder,
    );
    assert.match(
      said,
      new RegExp(`addon for ${platform}-${arch}.*: there is none for this platform`),
    );
    assert.match(said, /x64 and arm64: Linux with glibc .* or musl, macOS, Windows/);
    assert.doesNotMatch(said, /@holdfast\/addon|--include=optional/);
  });
}

test('on each platform that has an addon it names the one that is missing', async () => {
  const service = await packed.installed('other-platforms');
  removeFolder(join(service, 'node_modules', packed.addonName));
  const others = Object.keys(packed.manifest.optionalDependencies);
  assert.equal(others.length, 8);
  for (const addon of others.filter((name) => !name.endsWith('-musl'))) {
    const [, platform = '', arch = ''] = addon.split('-');
    const said = await succeeds(
      process.execPath,
      ['-e', `${disguise(platform, arch)}${LOAD}`],
      service,
    );
    assert.ok(said.includes(`This platform needs ${addon}, which is missing`), said);
  }
});

test('where addons are not allowed, it says so', async () => {
  const said = await succeeds(process.execPath, ['--no-addons', '-e', LOAD], folder);
  assert.match(said, /^ERR_LOCK_NATIVE_LOAD .*--no-addons/);
});

test('an addon that cannot be loaded is told with the reason of the system', async () => {
  const service = await packed.installed('broken-addon');
  const addon = join(service, 'node_modules', packed.addonName);
  const [file = ''] = (await list(packed.addon)).filter((name) => name.endsWith('.node'));
  writeFileSync(join(addon, file.slice('package/'.length)), 'no program');
  const said = await succeeds(process.execPath, ['-e', LOAD], service);
  assert.match(said, /^ERR_LOCK_NATIVE_LOAD .*(invalid ELF header|file too short|not a mach-o)/);
});
