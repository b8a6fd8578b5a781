// One participant on a Cluster, in a process of its own.

import { randomBytes } from 'node:crypto';
import { answer } from '../answer.mjs';
import { measure, namesFor } from '../pairs/measure.mjs';

const TTL_MS = 10_000;

/** The compare-and-delete of hand-written locks. */
const RELEASE =
  'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

const OPEN = { holdfast: openHoldfast, 'ioredis Cluster': openIoredis };

let peer;

answer({
  async open(urls) {
    peer = await OPEN[process.argv[2]](urls);
  },
  run({ level, ms }) {
    return measure(peer, { names: namesFor(process.pid, level), level, ms });
  },
});

async function openHoldfast(cluster) {
  const { connect } = await import('../../dist/index.mjs');
  const locks = await connect({ cluster }, { ttl: TTL_MS });
  return {
    acquire: (name) => locks.acquire(name),
    async release(_name, lock) {
      if (!(await lock.release())) throw new Error('release found the lock lost');
    },
  };
}

/** The hand-written snippet on the common client, with default settings. */
async function openIoredis(urls) {
  const { Cluster } = await import('ioredis');
  const client = new Cluster(urls, { lazyConnect: true });
  await client.connect();
  client.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE });
  return {
    async acquire(name) {
      const token = randomBytes(16).toString('hex');
      if ((await client.set(name, token, 'PX', TTL_MS, 'NX')) !== 'OK') throw new Error('taken');
      return token;
    },
    async release(name, token) {
      if ((await client.releaseLock(name, token)) !== 1) throw new Error('not the owner');
    },
  };
}
