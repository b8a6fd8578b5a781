/** A client without holdfast, which follows docs/protocol.md: it and holdfast exclude each other, and wait in one queue. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { serverOfFile } from '../../support/server-of-file.js';
import { Program } from './program.js';

const server = serverOfFile();

test('the client of another language waits for holdfast, and holdfast for it', async () => {
  const client = new Program('other-client/client.mjs', { REDIS_URL: server.url });
  assert.equal(await client.ended(), 0, client.lines.join('\n'));
  assert.deepEqual(client.lines, [
    'enqueued at 1, holdfast has it: true',
    'its fence is greater: true',
    'holdfast gets it meanwhile: false',
    'extended: true',
    'the next fence is greater: true',
  ]);
});
