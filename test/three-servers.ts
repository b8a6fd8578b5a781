/** Three servers for the tests of a file, without data at the begin of each test, and clients that end with it. */

import { after, afterEach, before } from 'node:test';
import type { Redis } from 'ioredis';
import { clientOf } from './adapters/redlock/implementations.js';
import { RedisServer } from './support/server.js';

export interface ThreeServers {
  readonly servers: readonly RedisServer[];
  /** The first of them. */
  readonly server: RedisServer;
  /** A client of one of them, by default of the first. */
  client(this: void, where?: RedisServer, options?: object): Redis;
}

/** To be called once, ahead of the tests. */
export function threeServers(): ThreeServers {
  let servers: RedisServer[] = [];
  const clients: Redis[] = [];
  const first = () => servers[0] as RedisServer;

  before(async () => {
    servers = await RedisServer.startSeveral(3);
  });

  after(() => Promise.all(servers.map((each) => each.stop())));

  afterEach(async () => {
    for (const client of clients.splice(0)) client.disconnect();
    await Promise.all(servers.map(async (each) => each.running && each.admin.flushall()));
  });

  return {
    get servers() {
      return servers;
    },
    get server() {
      return first();
    },
    client(where = first(), options = {}) {
      const made = clientOf(where, options);
      clients.push(made);
      return made;
    },
  };
}
