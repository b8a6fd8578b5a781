/** What docs/connecting.md shows, on each of the places that it speaks of. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { Places } from './places.js';
import { runPage } from './run-page.js';

let server: RedisServer;
let places: Places;

before(async () => {
  server = await RedisServer.start();
  places = await Places.open();
});

after(() => Promise.all([server?.stop(), places?.close()]));

runPage('docs/connecting.md', {
  surroundings: () => {
    const { env, instead } = places.surroundings;
    const stage = 'test/docs/stage.mjs';
    return {
      env,
      instead: {
        ...instead,
        'redis://127.0.0.1:6379': server.url,
        'port: 6379': `port: ${server.port}`,
      },
      stage,
    };
  },
});
