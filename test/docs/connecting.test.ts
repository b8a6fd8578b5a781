/** What docs/connecting.md shows, on each of the places that it speaks of. */

import { after, before } from 'node:test';
import { RedisServer } from '../support/server.js';
import { Places } from './places.js';
import { rotating } from './recipes.js';
import { runPage } from './run-page.js';

let server: RedisServer;
let places: Places;

before(async () => {
  server = await RedisServer.start();
  places = await Places.open();
});

after(() => Promise.all([server?.stop(), places?.close()]));

/** A token of Entra ID, which tells its user. */
function entraToken(secret: string): string {
  const claims = Buffer.from(JSON.stringify({ oid: 'shop' })).toString('base64url');
  return `header.${claims}.${secret}`;
}

/** What becomes of a request that is signed for AWS. */
function awsToken(secret: string): string {
  return `shop-cache/?Action=connect&User=shop&X-Amz-Expires=900&X-Amz-Signature=${secret}`;
}

runPage('docs/connecting.md', {
  otherwise: {
    '/run/secrets/redis': rotating({ address: '127.0.0.1:6379' }),
    VAULT_ADDR: rotating({ address: 'vault.example.com:6379' }),
    '@smithy/signature-v4': rotating({
      address: 'master.shop-cache.abc123.euw1.cache.amazonaws.com:6379',
      instead: { rediss: 'redis' },
      passwordOf: awsToken,
    }),
    '@azure/identity': rotating({
      address: 'shop.westeurope.redis.azure.net:10000',
      instead: { rediss: 'redis' },
      secretOf: entraToken,
    }),
    'google-auth-library': rotating({
      address: '10.0.0.5:6379',
      user: 'default',
      // One server: the recipe is about the login.
      instead: { '{ cluster: [': '', '] }, {': ', {' },
    }),
  },
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
