import { createClient } from 'redis';
import type { RedisServer } from '../support/server.js';
import { byHand } from './by-hand.js';
import { type Peer, testRollingDeploy } from './rolling-deploy.js';

testRollingDeploy('SET NX by hand, node-redis', async (server: RedisServer): Promise<Peer> => {
  const client = createClient({ url: server.url });
  client.on('error', () => {});
  await client.connect();
  return byHand({
    setNx: (key, value, ttl) =>
      client.set(key, value, { condition: 'NX', expiration: { type: 'PX', value: ttl } }),
    eval: (script, key, args) => client.eval(script, { keys: [key], arguments: [...args] }),
    close: async () => client.destroy(),
  });
});
