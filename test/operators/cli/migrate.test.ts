/** `holdfast migrate` as a command: its report, exit codes and errors. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ended, ROOT } from '../../support/child.js';
import { folderOf, migrates } from '../migrate/support.js';
import { environment } from './support.js';

const folder = folderOf({
  'bad.js': "async function lock() {\n  await redis.setnx('job\\u001b-lock', 1);\n}\n",
  'good/a.js':
    "const got = await redis.set('job:lock', randomUUID(), 'PX', 9, 'NX');\nif (got) await run();\n",
  'empty/a.js': 'export {};\n',
});

test('the report names file, line, rule and page, and escapes what a terminal obeys', async () => {
  const { stdout, code } = await migrates(folder);
  assert.equal(code, 0);
  assert.match(stdout, /^bad\.js:2:9 SETNX 'job\\u001b-lock'$/m);
  assert.match(stdout, /^ {2}no-expiry 2:9 the lock has no expiry/m);
  assert.match(stdout, /^ {2}result-not-checked 2:9 /m);
  assert.match(stdout, /^2 locks in 2 files of 3$/m);
  assert.match(stdout, /^ +1 {2}no-expiry +docs\/migrate-rules\.md#no-expiry$/m);
});

const TAKEN = `export async function f(key, work) {
  const got = await redis.set(key, '1', 'PX', 900, 'NX');
  if (!got) return;
  try { await work(); } finally { await redis.del(key); }
}
`;

/** The summary in the report of a folder. */
async function summaryOf(place: string, ...args: string[]): Promise<string[]> {
  const lines = (await migrates(place, ...args)).stdout.split('\n');
  return lines.slice(lines.findIndex((line) => /^\d+ locks? in /.test(line)));
}

test('the rules are told by their level, and of one level first what is broken most', async () => {
  const rules = folderOf({
    'a.js': "async function lock() {\n  await redis.setnx('job-lock', 1);\n}\n",
    'b.js': TAKEN,
    'c.js': TAKEN,
  });
  assert.deepEqual(await summaryOf(rules), [
    '3 locks in 3 files of 3',
    '    2  release-without-compare  docs/migrate-rules.md#release-without-compare',
    '    1  no-expiry                docs/migrate-rules.md#no-expiry',
    '    1  result-not-checked       docs/migrate-rules.md#result-not-checked',
    '    2  value-not-unique         docs/migrate-rules.md#value-not-unique',
    '    2  no-renewal               docs/migrate-rules.md#no-renewal',
    '',
  ]);
});

test('the report says what --write would change, and then what it has changed', async () => {
  const client = "import { Redis } from 'ioredis';\nconst redis = new Redis('redis://h:1');\n";
  const own = folderOf({
    'a.mjs': client + TAKEN,
    'broken.js': 'redis.setnx(lock, 1)}}',
    'd/package.json': '{"dependencies":{"redlock":"^5.0.0"}}',
    'd/a.js': "import 'redlock';\n",
  });
  const before = await migrates(own);
  assert.match(before.stdout, /^ {2}→ --write: tryAcquire of holdfast, on the same key$/m);
  assert.match(before.stdout, /^ {2}→ --write: import holdfast\/redlock in its place$/m);
  assert.match(before.stdout, /^broken\.js: not read: no program that can be parsed\n2 locks in /m);
  assert.match(before.stdout, /\n--write changes 3 files: a\.mjs, d\/a\.js, d\/package\.json\.\n$/);
  const after = await migrates(own, '--write');
  assert.match(after.stdout, /^ {2}→ changed to: tryAcquire of holdfast, on the same key$/m);
  assert.match(
    after.stdout,
    /\nChanged 3 files: a\.mjs, d\/a\.js, d\/package\.json\.\nRun npm install holdfast, and your tests\.\n$/,
  );
  assert.deepEqual(await summaryOf(own), ['0 locks in 0 files of 3', '']);
});

test('a lock that stays has the code to paste below its advice, also in SARIF', async () => {
  const { stdout } = await migrates(folder, 'bad.js');
  const code = "const lock = await locks.tryAcquire('job\\u001b-lock') … await lock?.release()";
  assert.ok(stdout.includes(`, it is\n    ${code}\n\n1 lock in 1 file of 1\n`), stdout);
  const { runs } = JSON.parse((await migrates(folder, 'bad.js', '--sarif')).stdout);
  const [{ message }] = runs[0].results;
  assert.ok(message.text.startsWith('the lock has no expiry: a crash holds it for ever. with'));
  assert.ok(message.text.endsWith(`, it is: ${code}`), message.text);
  const [rule] = runs[0].tool.driver.rules;
  assert.equal(rule.help.text, `docs/migrate-rules.md#${rule.id}`);
  assert.equal(rule.defaultConfiguration.level, 'error');
});

test('--fail-on', async () => {
  const codes = await Promise.all(
    [
      ['--fail-on', 'error'],
      ['good', '--fail-on', 'note'],
      ['empty', '--fail-on', 'note'],
      ['--fail-on', 'fatal'],
      ['none'],
      ['--json', '--sarif'],
    ].map(async (args) => (await migrates(folder, ...args)).code),
  );
  assert.deepEqual(codes, [1, 0, 0, 64, 64, 64]);
});

test('--sarif', async () => {
  const { stdout } = await migrates(folder, '--sarif');
  const { version, runs } = JSON.parse(stdout);
  assert.equal(version, '2.1.0');
  const [result] = runs[0].results;
  assert.deepEqual([result.ruleId, result.level], ['no-expiry', 'error']);
  assert.equal(runs[0].tool.driver.rules[result.ruleIndex].id, 'no-expiry');
  const { artifactLocation, region } = result.locations[0].physicalLocation;
  assert.deepEqual([artifactLocation.uri, region], ['bad.js', { startLine: 2, startColumn: 9 }]);
});

test('--sarif names files by URIs, and what was not read', async () => {
  const odd = folderOf({
    'a #1?/50%é.js': "redis.setnx('job:lock', 1);\n",
    'broken.js': "redis.setnx('job:lock', 1);\n}}",
  });
  const [run] = JSON.parse((await migrates(odd, '--sarif')).stdout).runs;
  const { uri, uriBaseId } = run.results[0].locations[0].physicalLocation.artifactLocation;
  assert.deepEqual([uri, uriBaseId], ['a%20%231%3F/50%25%C3%A9.js', '%SRCROOT%']);
  const [{ executionSuccessful, toolExecutionNotifications: told }] = run.invocations;
  assert.deepEqual([executionSuccessful, told.length, told[0].level], [true, 1, 'warning']);
  assert.equal(told[0].locations[0].physicalLocation.artifactLocation.uri, 'broken.js');
});

test('without the parser it says how to install it', async () => {
  const alone = folderOf({});
  for (const name of ['dist', 'native', 'package.json']) {
    cpSync(join(ROOT, name), join(alone, 'holdfast', name), { recursive: true });
  }
  mkdirSync(join(alone, 'node_modules'));
  for (const name of ['commander', 'croner']) {
    symlinkSync(join(ROOT, 'node_modules', name), join(alone, 'node_modules', name));
  }
  const main = join(alone, 'holdfast', 'dist', 'operators', 'cli', 'main.js');
  const { code, stderr } = await ended(
    spawn(process.execPath, [main, 'migrate'], {
      cwd: alone,
      env: environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  );
  assert.equal(code, 69);
  assert.match(stderr, /oxc-parser is missing.*npm install --save-dev oxc-parser ignore/);
});
