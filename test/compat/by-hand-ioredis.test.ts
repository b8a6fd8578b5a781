import type { RedisServer } from '../support/server.js';
import { byHand } from './by-hand.js';
import { type Peer, testRollingDeploy } from './rolling-deploy.js';

testRollingDeploy('SET NX by hand, ioredis', async (server: RedisServer): Promise<Peer> => {
  const client = server.client();
  return byHand({
    setNx: (key, value, ttl) => client.set(key, value, 'PX', ttl, 'NX'),
    eval: (script, key, args) => client.eval(script, 1, key, ...args),
    close: async () => client.disconnect(),
  });
});
