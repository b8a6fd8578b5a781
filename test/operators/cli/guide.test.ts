/** docs/cli.md: every line of shell in it runs, and every document in it has the shape of a real one. */

import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../../support/child.js';
import { removeFolder } from '../../support/folders.js';
import { connect, type LockManager } from '../../support/holdfast.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import { environment, MAIN } from './support.js';

const folder = mkdtempSync(join(tmpdir(), 'holdfast-guide-'));
const guide = readFileSync(join(ROOT, 'docs', 'cli.md'), 'utf8');
let server: RedisServer;
let locks: LockManager;

function program(name: string, source: string): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${source}\n`);
  chmodSync(join(folder, name), 0o755);
}

/** As a shell of the reader would run it, with holdfast on PATH. */
function shell(line: string): SpawnSyncReturns<string> {
  const PATH = `${folder}:${process.env['PATH']}`;
  const env = environment(server, { PATH });
  return spawnSync('sh', ['-c', line], { cwd: folder, env, encoding: 'utf8' });
}

function blocks(language: string): string[] {
  const found = guide.matchAll(/^```(\S*)\n(.*?)^```$/gms);
  return Array.from(found, ([, kind, text = '']) => (kind === language ? text : '')).filter(
    Boolean,
  );
}

before(async () => {
  server = await RedisServer.start({ persistent: true });
  locks = await connect(server.url);
  program('holdfast', `exec "${process.execPath}" "${MAIN}" "$@"`);
  program('deploy.sh', 'echo "deployed $1"');
  program('nightly.sh', 'echo "ran once" >> nightly.log');
});

after(async () => {
  await locks.close();
  await server.stop();
  removeFolder(folder);
});

test('every line of shell runs as the guide says', async () => {
  const said = new Map<string, string>();
  await locks.acquire('item:42', { label: 'web-1' });
  for (const line of blocks('sh').join('').trim().split('\n')) {
    const { status, stdout, stderr } = shell(line);
    assert.equal(status, 0, `${line}\n${stdout}${stderr}`);
    said.set(line, stdout);
  }
  assert.equal(said.get('holdfast run deploy -- ./deploy.sh --now'), 'deployed --now\n');
  const fenced = [...said].find(([line]) => line.includes('HOLDFAST_FENCE'))?.[1];
  assert.match(fenced ?? '', /^fence \d{16} of report\n$/);
  assert.match(said.get('holdfast ls') ?? '', /^item:42 .*web-1/m);
  assert.match(said.get('holdfast doctor') ?? '', /Fit for locks/);
});

test('the line of the crontab runs its job once', () => {
  const [tab = ''] = blocks('crontab');
  const [setting, entry = ''] = tab.trim().split('\n');
  assert.equal(setting, 'HOLDFAST_URL=redis://10.0.0.1:6379');
  const line = entry.replace(/^(\S+ ){5}/, '');
  for (let machine = 0; machine < 3; machine++) {
    const { status, stdout, stderr } = shell(line);
    assert.deepEqual([status, stdout, stderr], [0, '', '']);
  }
  assert.equal(readFileSync(join(folder, 'nightly.log'), 'utf8'), 'ran once\n');
});

/** The names and types of a document's fields. */
function shape(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, 1).map(shape);
  if (typeof value !== 'object' || value === null) return value === null ? null : typeof value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, shape(each)]));
}

test('every document has the shape of a real one', async () => {
  const [ls, show, watch, release, doctor, error] = blocks('json').map((text) => JSON.parse(text));
  const others = await connect(server.url);
  await others.acquire('item:42', { label: 'web-1', wait: 30_000 });
  const waiting = locks.acquire('item:42', { wait: 30_000 });
  waiting.catch(() => {});
  await until(
    async () => (await locks.query()).pending.length === 1,
    'its position in the wait queue',
  );
  const json = (line: string) => JSON.parse(shell(`holdfast ${line} --json`).stdout);
  assert.deepEqual(shape(json('ls item:42')), shape(ls));
  const busy = shell('holdfast run item:42 --if-available --json -- true').stderr;
  assert.deepEqual(shape(JSON.parse(busy)), shape(error));
  await others.close();
  await (await waiting).release();
  assert.deepEqual(shape(json('release item:42 --yes')), shape(release));
  await server.admin.set('lock:item:42', 'other code', 'PX', 60_000);
  assert.deepEqual(shape(json('show item:42')), shape(show));
  await server.admin.del('lock:item:42');
  const found = json('doctor');
  assert.deepEqual(shape(found), shape({ ...doctor, findings: doctor.findings.slice(0, 1) }));
  const { dialect, sql } = json('fence-table sqlite');
  assert.deepEqual([dialect, `${sql}\n`], ['sqlite', shell('holdfast fence-table sqlite').stdout]);
  assert.deepEqual(shape(watch), {
    time: 'string',
    lock: { name: 'string', kind: 'string', mode: null, limit: null, holders: [], waiters: [] },
  });
});

test('the guide names every command and every option', () => {
  const commands = ['run', 'ls', 'show', 'watch', 'release', 'doctor', 'fence-table', 'completion'];
  for (const command of commands) {
    const { status, stdout } = shell(`holdfast ${command} --help`);
    assert.equal(status, 0);
    assert.match(stdout, /^Examples:$/m, command);
    assert.match(stdout, /^Exit codes:$/m, command);
    for (const [option] of stdout.matchAll(/--[a-z-]+(?= |$)/gm)) {
      if (option !== '--help') assert.ok(guide.includes(option), `${command} ${option}`);
    }
  }
});
