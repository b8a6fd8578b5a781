/** What docs/connecting.md shows, on each of the places that it speaks of. */

import { after, before } from 'node:test';
import { Authority } from '../support/certificates.js';
import { Cluster } from '../support/cluster.js';
import { Sentinels } from '../support/sentinels.js';
import { RedisServer } from '../support/server.js';
import type { Surroundings } from './programs.js';
import { runPage } from './run-page.js';

const PASSWORD = 'of-the-server';
const SENTINEL_PASSWORD = 'of-the-sentinels';

const authority = new Authority();
const servers: RedisServer[] = [];
let cluster: Cluster;
let sentinels: Sentinels;

before(async () => {
  const tls = { server: authority.issue('DNS:localhost,IP:127.0.0.1'), ca: authority.ca };
  servers.push(await RedisServer.start({ tls, password: PASSWORD }));
  servers.push(...(await RedisServer.startSeveral(4)));
  cluster = await Cluster.start();
  const passwords = { password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD };
  sentinels = await Sentinels.start(passwords);
});

after(async () => {
  await Promise.all([cluster?.stop(), sentinels?.stop(), ...servers.map((each) => each.stop())]);
  authority.remove();
});

function surroundings(): Surroundings {
  const [secure, one, ...quorum] = servers;
  const instead: Record<string, string> = {
    'redis://127.0.0.1:6379': one?.url ?? '',
    'redis.example.com:6380': `127.0.0.1:${secure?.port}`,
    '/etc/redis/ca.pem': authority.ca.certFile,
  };
  for (const [index, { url }] of cluster.nodes.entries()) {
    instead[`redis://10.0.0.${index + 1}:6379`] = url;
  }
  for (const [index, { port }] of sentinels.sentinels.entries()) {
    instead[`10.0.0.${index + 1}:26379`] = `127.0.0.1:${port}`;
  }
  for (const [index, { url }] of quorum.entries()) instead[`redis://${'abc'[index]}:6379`] = url;
  const env = { REDIS_PASSWORD: PASSWORD, SENTINEL_PASSWORD };
  return { env, instead, stage: 'test/docs/stage.mjs' };
}

runPage('docs/connecting.md', { surroundings });
