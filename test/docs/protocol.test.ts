/** The client that docs/protocol.md shows: it and holdfast exclude each other, and wait in one queue. */

import { join } from 'node:path';
import { after, before } from 'node:test';
import { ROOT } from '../support/child.js';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

runPage('docs/protocol.md', {
  surroundings: () => ({
    env: { REDIS_URL: server.url },
    instead: {
      'redis://127.0.0.1:6379': server.url,
      '`src/protocol/lua/': `\`${join(ROOT, 'src', 'protocol', 'lua')}/`,
    },
    stage: 'test/docs/stage.mjs',
  }),
});
