/** No password is ever shown, and the library knows nothing of the command line. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT, run } from '../../support/child.js';
import { serverOfFile } from '../../support/server-of-file.js';
import { ends, environment, Running } from './support.js';

const PASSWORD = 's3cret';
const OTHER = 'n0t-it';

let url: string;

const server = serverOfFile({ password: PASSWORD }, () => {
  url = server.url.replace('//', `//default:${PASSWORD}@`);
});

test('the login may stand in the environment, apart from the URL', async () => {
  const env = environment(server, { HOLDFAST_PASSWORD: PASSWORD });
  await ends(0, env, 'run', 'job', '--', 'true');
  await ends(69, environment(server), 'run', 'job', '--', 'true');
  const wrong = environment(undefined, { HOLDFAST_URL: url, HOLDFAST_PASSWORD: OTHER });
  await ends(69, wrong, 'run', 'job', '--', 'true');
});

test('the command does not get the login', async () => {
  const logins = {
    HOLDFAST_USERNAME: 'default',
    HOLDFAST_PASSWORD: PASSWORD,
    HOLDFAST_SENTINEL_USERNAME: 'nobody',
    HOLDFAST_SENTINEL_PASSWORD: OTHER,
  };
  const env = environment(server, { ...logins, OWN: 'kept' });
  const { stdout } = await ends(0, env, 'run', 'job', '--', 'env');
  for (const name of Object.keys(logins)) assert.doesNotMatch(stdout, new RegExp(`^${name}=`, 'm'));
  assert.ok(!stdout.includes(PASSWORD) && !stdout.includes(OTHER), stdout);
  for (const line of ['HOLDFAST_LOCK=job', `HOLDFAST_URL=${server.url}`, 'OWN=kept']) {
    assert.ok(stdout.split('\n').includes(line), `${line} in ${stdout}`);
  }
});

test('with --clean-env the command does not get the URLs either, in which a login may be', async () => {
  const env = environment(undefined, { HOLDFAST_URL: url, REDIS_URL: url, OWN: 'kept' });
  const shown = await ends(0, env, 'run', 'job', '--', 'env');
  assert.equal(shown.stdout.match(new RegExp(PASSWORD, 'g'))?.length, 2);
  const { stdout } = await ends(0, env, 'run', '--clean-env', 'job', '--', 'env');
  assert.doesNotMatch(stdout, new RegExp(`_URL=|${PASSWORD}`));
  for (const line of ['HOLDFAST_LOCK=job', 'OWN=kept']) {
    assert.ok(stdout.split('\n').includes(line), `${line} in ${stdout}`);
  }
});

test('no error shows a password', async () => {
  const wrong = url.replace(PASSWORD, OTHER);
  const sentinels = ['--sentinel', wrong, '--master', 'mymaster'];
  const quorum = [1, 2, 3].flatMap((port) => ['--quorum', `redis://:${OTHER}@127.0.0.1:${port}`]);
  const places: [number, ...string[]][] = [
    [69, '--url', wrong],
    [69, '--url', `redis://:${OTHER}@127.0.0.1:1`],
    [69, '--cluster', wrong],
    [69, ...sentinels],
    [69, ...quorum],
    [64, '--url', `http://user:${OTHER}@host`],
    [64, '--url', `user:${OTHER}@host:6379`],
    [64, '--url', `redis://user:${OTHER}/x@host`],
    [64, '--url', `unix:///socket?pass=${OTHER}&x=1`],
  ];
  for (const [code, ...place] of places) {
    for (const json of [[], ['--json']]) {
      const args = ['run', 'job', ...place, ...json, '--', 'true'];
      const { stdout, stderr } = await ends(code, environment(), ...args);
      assert.ok(stderr !== '' && !`${stdout}${stderr}`.includes(OTHER), stderr);
    }
  }
});

test('what is wrong with the arguments is told without the password in them', async () => {
  const wrong = `redis://user:${OTHER}@host`;
  for (const args of [
    ['ls', `--ulr=${wrong}`],
    ['ls', `--ulr=user:${OTHER}@host`],
    ['ls', `--ulr=unix:///socket?pass=${OTHER}`],
    ['watch', '--interval', wrong],
    ['run', 'job', '--mode', wrong, 'true'],
    [wrong],
  ]) {
    for (const json of [[], ['--json']]) {
      const { stderr } = await ends(64, environment(), ...args, ...json);
      assert.ok(stderr !== '' && !stderr.includes(OTHER), stderr);
      if (json.length > 0) assert.equal(JSON.parse(stderr).error.code, 'ERR_USAGE');
    }
  }
});

test('no answer shows a password', async () => {
  for (const args of [['ls'], ['show', 'job'], ['doctor'], ['doctor', '--json']]) {
    const { ended } = new Running([...args, '--url', url], environment());
    const { stdout, stderr } = await ended;
    assert.ok(stdout !== '' && !`${stdout}${stderr}`.includes(PASSWORD), stdout);
  }
});

test('ps shows no password once the program runs', {
  skip: process.platform !== 'linux',
}, async () => {
  const words = ['--', 'sh', '-c', 'echo in; sleep 0.3'];
  const running = new Running(['run', 'job', '--url', url, ...words], environment());
  await running.says('in');
  const shown = readFileSync(`/proc/${running.child.pid}/cmdline`, 'utf8');
  assert.match(shown, /^holdfast run job --url redis:\/\/\*\*\*/);
  assert.ok(!shown.includes(PASSWORD), shown);
  await running.ended;
});

test('the library does not load the parser of the command line', async () => {
  const source = `
    import { createRequire } from 'node:module';
    import 'holdfast';
    const loaded = Object.keys(createRequire(import.meta.url).cache);
    console.log(loaded.length > 0, loaded.some((file) => /commander|dist.cli/.test(file)));`;
  const { stdout, stderr } = await run(source);
  assert.equal(stdout, 'true false\n', stderr);
});

test('--version tells that of the package', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const { stdout } = await ends(0, environment(), '--version');
  assert.equal(stdout, `${version}\n`);
});

test('without a command, and with one that is unknown, it tells what there is', async () => {
  const { stdout } = await ends(0, environment(), '--help');
  for (const command of ['run', 'ls', 'show', 'watch', 'release', 'doctor']) {
    assert.match(stdout, new RegExp(`^  ${command} `, 'm'));
  }
  const bare = await ends(64, environment());
  assert.match(`${bare.stdout}${bare.stderr}`, /^Usage: holdfast/m);
  const { stderr } = await ends(64, environment(), 'realese');
  assert.match(stderr, /unknown command 'realese'\s+\(Did you mean release\?\)/);
});
