/** What docs/observability.md shows. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

runPage('docs/observability.md', {
  surroundings: () => ({
    env: { REDIS_URL: server.url },
    // The package itself is not among those that it needs.
    instead: { 'node_modules/holdfast/': '' },
    stage: 'test/docs/stage.mjs',
  }),
});
