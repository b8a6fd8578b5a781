/** What docs/jobs.md shows. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

runPage('docs/jobs.md', {
  surroundings: () => ({
    env: { REDIS_URL: server.url },
    instead: {},
    stage: 'test/docs/stage.mjs',
  }),
});
