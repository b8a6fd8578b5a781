/** What the command line says where no server answers. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisServer } from '../../support/server.js';
import { ends, environment } from './support.js';

/** The URL of a server that has just ended. */
async function nowhere(): Promise<string> {
  const server = await RedisServer.start();
  await server.stop();
  return server.url;
}

test('each command says which option or variable named the server, and gives no advice for programs', async () => {
  const url = await nowhere();
  for (const [words, code] of [
    [['ls'], 69],
    [['show', 'a'], 69],
    [['watch'], 69],
    [['release', 'a', '--yes'], 69],
    [['run', 'a', '--', 'true'], 69],
    [['lead', 'a', '--', 'true'], 69],
    [['ui', '--port', '0'], 69],
    [['doctor'], 1],
  ] as const) {
    for (const [option, variable, named] of [
      [['--url', url], {}, '--url named it'],
      [[], { HOLDFAST_URL: url }, 'the variable HOLDFAST_URL named it'],
      [[], { REDIS_URL: url }, 'the variable REDIS_URL named it'],
    ] as const) {
      const place = words.indexOf('--' as never);
      const at = place < 0 ? words.length : place;
      const args = [...words.slice(0, at), ...option, ...words.slice(at)];
      const { stdout, stderr } = await ends(code, environment(undefined, variable), ...args);
      const said = `${stdout}${stderr}`.replaceAll(/\s+/g, ' ');
      assert.ok(said.includes(named), `${args.join(' ')}: ${said}`);
      assert.doesNotMatch(said, /waitForServer|connect waits/);
    }
  }
});

test('a URL in the place of a name is told to be one', async () => {
  for (const command of ['ls', 'watch', 'show', 'release']) {
    const { stderr } = await ends(64, environment(), command, 'redis://:s3cret@127.0.0.1:1');
    assert.match(stderr, /a URL is no name of a lock: name the server with --url/);
    assert.doesNotMatch(stderr, /s3cret/);
  }
});
