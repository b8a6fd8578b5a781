/** `holdfast migrate --write` and files: no half of one is ever there, and what a file is stays. */

import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { chmodSync, chownSync, lstatSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ended } from '../../support/child.js';
import { environment, MAIN } from '../cli/support.js';
import { folderOf, migrates, migratesAs, type Report, read } from './support.js';

const OLD = `import { Redis } from 'ioredis';
const redis = new Redis(process.env.REDIS_URL);
export async function f(key, work) {
  const got = await redis.set(key, '1', 'PX', 900, 'NX');
  if (!got) return;
  try { await work(); } finally { await redis.del(key); }
}
`;
const HOLDFAST = /tryAcquire\(key, { ttl: 900 }\)/;
const NOT_WRITTEN = 73;

/** The files of a folder that are no drafts must be as they were; there must be no drafts. */
function assertUntouched(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) assert.equal(read(folder, name), text, name);
  assert.deepEqual(draftsIn(folder), []);
}

function draftsIn(folder: string): string[] {
  return (readdirSync(folder, { recursive: true }) as string[]).filter((name) =>
    name.endsWith('.tmp'),
  );
}

test('if one file cannot be written, none changes, and the report says why', async () => {
  const files = { 'a.mjs': OLD, 'b/closed.mjs': OLD, 'c.mjs': OLD };
  const folder = folderOf(files);
  const user = process.getuid?.() === 0 ? { uid: 65_534 } : {};
  chmodSync(folder, 0o777);
  chmodSync(join(folder, 'b'), 0o555);
  const { code, stdout } = await migratesAs(folder, ['--write', '--json'], user);
  chmodSync(join(folder, 'b'), 0o755);
  const { changed, unchanged } = JSON.parse(stdout) as Report;
  assert.deepEqual([code, changed], [NOT_WRITTEN, []]);
  assert.deepEqual(
    unchanged.map(({ path, reason }) => `${path} ${/^[A-Z]+|^another file/.exec(reason)?.[0]}`),
    ['a.mjs another file', 'b/closed.mjs EACCES', 'c.mjs another file'],
  );
  assertUntouched(folder, files);
  const { stdout: text } = await migrates(folder, '--write');
  assert.match(text, /^Changed 3 files: a\.mjs, b\/closed\.mjs, c\.mjs\.$/m);
});

/** Only the superuser may give a folder files of several users. */
const superuser = { skip: process.getuid?.() !== 0 };

test('a file that cannot be replaced is told, and leaves no draft', superuser, async () => {
  const folder = folderOf({ 'a.mjs': OLD });
  // Anybody may add files to it, and replace only their own.
  chmodSync(folder, 0o1777);
  const { code, stdout } = await migratesAs(folder, ['--write', '--json'], { uid: 65_534 });
  const { changed, unchanged } = JSON.parse(stdout) as Report;
  assert.deepEqual([code, changed], [NOT_WRITTEN, []]);
  assert.deepEqual(
    unchanged.map(({ path, reason }) => `${path} ${/^[A-Z]+/.exec(reason)?.[0]}`),
    ['a.mjs EPERM'],
  );
  assertUntouched(folder, { 'a.mjs': OLD });
});

test('a file that the disk has no room for stays whole, as do the others', async () => {
  const files = { 'a.mjs': OLD, 'long.mjs': `${OLD}// ${'x'.repeat(100_000)}\n` };
  const folder = folderOf(files);
  // The system lets no file of the command grow beyond some kilobytes.
  const limited = `trap '' XFSZ; ulimit -f 20; exec "$0" "$@"`;
  const { code, stdout } = await ended(
    spawn('sh', ['-c', limited, process.execPath, MAIN, 'migrate', '--write'], {
      cwd: folder,
      env: environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  );
  assert.equal(code, NOT_WRITTEN);
  assert.match(stdout, /^long\.mjs: not changed: EFBIG/m);
  assert.match(stdout, /^No file is changed\.$/m);
  assertUntouched(folder, files);
});

const MANY = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`${i}.mjs`, OLD]));

/** Starts the command, and waits for its first draft. */
async function writing(folder: string): Promise<ChildProcessByStdio<null, Readable, Readable>> {
  const child = spawn(process.execPath, [MAIN, 'migrate', '--write', '--json'], {
    cwd: folder,
    env: environment(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  while (draftsIn(folder).length === 0 && child.exitCode === null) await sleep(1);
  return child;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  test(`${signal} while files are written changes all or none`, async () => {
    const folder = folderOf(MANY);
    const child = await writing(folder);
    child.kill(signal);
    const { code, stdout } = await ended(child);
    const { changes, changed, unchanged } = JSON.parse(stdout) as Report;
    assert.equal(changes.length, 300);
    if (code === 0) assert.equal(changed.length, 300);
    else {
      assert.deepEqual([code, changed, unchanged.length], [NOT_WRITTEN, [], 300]);
      assert.ok(unchanged.some(({ reason }) => reason === `stopped by ${signal}`));
      assertUntouched(folder, MANY);
    }
    assert.deepEqual(draftsIn(folder), []);
  });

test('a killed command leaves each file whole', async () => {
  const folder = folderOf(MANY);
  const child = await writing(folder);
  child.kill('SIGKILL');
  await ended(child);
  for (const name of Object.keys(MANY)) {
    const text = read(folder, name);
    assert.ok(text === OLD || HOLDFAST.test(text), name);
  }
});

test('rights, the owner and links stay', async () => {
  const folder = folderOf({ 'src/run.mjs': `#!/usr/bin/env node\n${OLD}`, 'package.json': '{}' });
  // Only the superuser may give a file to another owner.
  if (process.getuid?.() === 0) chownSync(join(folder, 'src/run.mjs'), 65_533, 65_534);
  const { uid, gid } = statSync(join(folder, 'src/run.mjs'));
  chmodSync(join(folder, 'src/run.mjs'), 0o750);
  symlinkSync('src/run.mjs', join(folder, 'link.mjs'));
  await migrates(folder, 'link.mjs', '--write');
  assert.match(read(folder, 'src/run.mjs'), HOLDFAST);
  const now = statSync(join(folder, 'src/run.mjs'));
  assert.deepEqual([now.mode & 0o777, now.uid, now.gid], [0o750, uid, gid]);
  assert.ok(lstatSync(join(folder, 'link.mjs')).isSymbolicLink());
});

const ENDS = [
  ['\n', ''],
  ['\r\n', ''],
  ['\n', '\ufeff'],
  ['\r\n', '\ufeff'],
] as const;

test('a byte order mark, the line ends and a missing last line end stay', async () => {
  const redlock = "import Redlock from 'redlock'\nexport const r = new Redlock([c])";
  const manifest = '{\n  "dependencies": {\n    "redlock": "^5.0.0"\n  }\n}';
  const script = `${OLD.replace("'1', 'PX'", "'1', 'PX'").trimEnd()}\nconst RELEASE = 'x'`;
  const used = script.replace('redis.del(key)', 'redis.eval(RELEASE, 1, key, 1)');
  for (const [eol, mark] of ENDS) {
    const as = (text: string) => mark + text.replaceAll('\n', eol);
    const folder = folderOf({
      'a.mjs': as(redlock),
      'b.mjs': as(OLD.trimEnd()),
      'c.mjs': as(
        used.replace(
          "'x'",
          "\"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end\"",
        ),
      ),
      'package.json': as(manifest),
    });
    await migrates(folder, '--write');
    const ends = JSON.stringify([eol, mark]);
    assert.equal(
      read(folder, 'a.mjs'),
      as(redlock.replace("'redlock'", "'holdfast/redlock'")),
      ends,
    );
    assert.match(read(folder, 'package.json'), /"holdfast": "\^/, ends);
    assert.match(read(folder, 'b.mjs'), HOLDFAST, ends);
    assert.match(read(folder, 'c.mjs'), HOLDFAST, ends);
    assert.doesNotMatch(read(folder, 'c.mjs'), /RELEASE/, ends);
    for (const name of ['a.mjs', 'b.mjs', 'c.mjs', 'package.json']) {
      const text = read(folder, name);
      assert.equal(text.startsWith('\ufeff'), mark !== '', `${name} ${ends}`);
      assert.doesNotMatch(text, /\n$/, `${name} ${ends}`);
      assert.equal(/[^\r]\n/.test(text), eol === '\n', `${name} ${ends}`);
      assert.equal(text.lastIndexOf('\ufeff') <= 0, true, `${name} ${ends}`);
    }
  }
});
