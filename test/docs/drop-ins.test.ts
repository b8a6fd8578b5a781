/** What docs/redlock.md and docs/redis-semaphore.md show. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

const surroundings = () => ({ env: { REDIS_URL: server.url }, instead: {} });

runPage('docs/redlock.md', { surroundings });
runPage('docs/redis-semaphore.md', { surroundings });
