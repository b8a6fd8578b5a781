/** What docs/connecting.md shows, on each of the places that it speaks of, and examples/credentials. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { RedisServer } from '../support/server.js';
import { Places } from './places.js';
import { type Recipe, rotating } from './recipes.js';
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

/** The recipes for clouds. */
const FILES: Readonly<Record<string, Recipe>> = {
  'vault.mjs': { address: 'vault.example.com:6379' },
  'aws.mjs': {
    address: 'master.shop-cache.abc123.euw1.cache.amazonaws.com:6379',
    instead: { rediss: 'redis' },
    passwordOf: awsToken,
  },
  'azure.mjs': {
    address: 'shop.westeurope.redis.azure.net:10000',
    instead: { rediss: 'redis' },
    secretOf: entraToken,
  },
  'google.mjs': {
    address: '10.0.0.5:6379',
    user: 'default',
    // One server: the recipe is about the login.
    instead: { '{ cluster: [': '', '] }, {': ', {' },
  },
};
const FOLDER = join(ROOT, 'examples', 'credentials');

test('each file of examples/credentials has its recipe here', () => {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith('.mjs'));
  assert.deepEqual(files.sort(), Object.keys(FILES).sort());
});

for (const [file, recipe] of Object.entries(FILES)) {
  test(`examples/credentials/${file} logs in while the password changes`, async () => {
    const code = readFileSync(join(FOLDER, file), 'utf8');
    const page = `examples/credentials/${file}`;
    await rotating(recipe)({ page, line: 1, language: 'js', code });
  });
}

runPage('docs/connecting.md', {
  otherwise: { '/run/secrets/redis': rotating({ address: '127.0.0.1:6379' }) },
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
