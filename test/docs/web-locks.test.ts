/** What docs/web-locks.md shows. That both answer alike, test/request/web-locks compares. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { runPage } from './run-page.js';

let server: RedisServer;

before(async () => {
  server = await RedisServer.start();
});

after(() => server?.stop());

runPage('docs/web-locks.md', {
  surroundings: () => ({ env: {}, instead: { 'redis://127.0.0.1:6379': server.url } }),
});
