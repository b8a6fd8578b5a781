/** Runs recipes for passwords that change, while they change every second under locks that are held and waited for. */

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../support/child.js';
import { removeFolder } from '../support/folders.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';
import type { Block } from './blocks.js';
import { printedBy } from './programs.js';

/** How a recipe gets its password. */
export interface Recipe {
  /** The address in the recipe, in place of which the test's server stands. */
  readonly address: string;
  /** The ACL user; by default `shop`. */
  readonly user?: string;
  /** What stands in for other texts, such as the name of a package. */
  readonly instead?: Readonly<Record<string, string>>;
  /** What the cloud gives, of a random secret. */
  readonly secretOf?: (secret: string) => string;
  /** The password that the recipe makes of it. */
  readonly passwordOf?: (secret: string) => string;
}

const CLOUDS = `'${join(ROOT, 'test', 'docs', 'clouds.mjs')}'`;
const ROTATIONS = 4;
const EVERY_MS = 1_000;

/** What a service does with the manager of a recipe. */
const SERVICE = `
const held = await Promise.all(
  Array.from({ length: 1000 }, (_, i) => locks.acquire('held-' + i, { ttl: 5_000 })),
)
const waiting = held.slice(0, 100).map(({ name }) => locks.acquire(name, { wait: Infinity }))
const lost = []
locks.on('lost', (lock) => lost.push(lock.name))
const { existsSync, writeFileSync } = await import('node:fs')
writeFileSync(process.env.SERVICE_RUNS, '')
while (!existsSync(process.env.SERVICE_ENDS)) await new Promise((next) => setTimeout(next, 20))
if (lost.length > 0 || !held.every((lock) => lock.held)) throw new Error('lost ' + lost)
await Promise.all(held.map((lock) => lock.release()))
for (const lock of await Promise.all(waiting)) await lock.release()
await locks.close()
console.log('all ' + held.length + ' are there')
`;

/** The packages of clouds, by the names in the recipes. */
export const PACKAGES: Readonly<Record<string, string>> = Object.fromEntries(
  [
    '@aws-crypto/sha256-js',
    '@aws-sdk/credential-providers',
    '@smithy/signature-v4',
    '@azure/identity',
    'google-auth-library',
  ].map((name) => [`'${name}'`, CLOUDS]),
);

/** Runs a recipe. */
export function rotating(recipe: Recipe): (block: Block) => Promise<void> {
  return async (block) => {
    const server = await RedisServer.start();
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-recipe-'));
    const file = (name: string) => join(folder, name);
    const { user = 'shop', secretOf = String, passwordOf = secretOf } = recipe;
    let current = '';
    const change = async (secret: string) => {
      current = secretOf(secret);
      // As a whole: a reader must not find half of it.
      writeFileSync(file('next'), current);
      renameSync(file('next'), file('secret'));
      const rules = ['on', '~*', '&*', '+@all', 'resetpass', `>${passwordOf(secret)}`];
      await server.admin.call('ACL', 'SETUSER', user, ...rules);
      await server.admin.call('CLIENT', 'KILL', 'USER', user, 'SKIPME', 'yes');
    };
    const vault = createServer((_, response) => {
      const data = { username: user, password: current };
      response.end(JSON.stringify({ data, lease_duration: 2 }));
    }).listen(0, '127.0.0.1');
    try {
      await change('s3cret-0');
      const { port } = vault.address() as AddressInfo;
      const env = {
        CLOUD_SECRET: file('secret'),
        SERVICE_ENDS: file('ends'),
        SERVICE_RUNS: file('runs'),
        VAULT_ADDR: `http://127.0.0.1:${port}`,
        VAULT_TOKEN: 'token',
      };
      const instead = {
        [recipe.address]: server.url.replace('redis://', ''),
        '/run/secrets/redis': file('secret'),
        ...PACKAGES,
        ...recipe.instead,
      };
      const code = `${block.code}\n${SERVICE}`;
      const running = printedBy({ ...block, code }, { env, instead, stage: 'test/docs/stage.mjs' });
      let failed = false;
      running.catch(() => {
        failed = true;
      });
      await until(() => failed || existsSync(file('runs')), 'the service to run');
      for (let i = 1; i <= ROTATIONS; i++) {
        await sleep(EVERY_MS);
        await change(`s3cret-${i}`);
      }
      writeFileSync(file('ends'), '');
      assert.match(await running, /all 1000 are there/);
    } finally {
      vault.close();
      removeFolder(folder);
      await server.stop();
    }
  };
}
