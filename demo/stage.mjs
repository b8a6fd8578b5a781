// The stage of the scenes: a server, connections to it, and the buyers. inside.mjs has all that differs
// without a server.

import { randomBytes } from 'node:crypto';
import { connect } from 'holdfast';
import { Crowd } from './crowd.mjs';
import { Tables, Tasks } from './inside.mjs';
import { openRedis } from './redis.mjs';
import { findServer } from './server.mjs';

/** Everything is closed by `close`, also after `open` has failed half-way. */
export class Stage {
  server;
  locks;
  redis;
  crowd;
  // The braces keep all keys in one slot of a cluster, those that holdfast derives included.
  prefix = `holdfast-demo:{${randomBytes(4).toString('hex')}}:`;

  async open(processes) {
    this.server = await findServer(process.env);
    const { url } = this.server;
    const lockPrefix = `${this.prefix}lock:`;
    this.locks = await connect(url, { prefix: lockPrefix });
    if (this.server.embedded) {
      this.redis = new Tables();
      this.crowd = new Tasks(processes, this.redis);
    } else {
      this.redis = await openRedis(url);
      this.crowd = new Crowd(processes);
    }
    await this.crowd.connect({ url, lockPrefix });
  }

  /** The server in words: `Redis 7.2.4 at 127.0.0.1:6379`. */
  async describeServer() {
    const { embedded, url, origin } = this.server;
    if (embedded) return `none; ${url}, the store inside this process`;
    const info = await this.redis.sendCommand(['INFO', 'server']);
    const field = (name) => new RegExp(`^${name}:(.+?)\\r?$`, 'm').exec(info)?.[1];
    const valkey = field('valkey_version');
    const version = valkey ? `Valkey ${valkey}` : `Redis ${field('redis_version')}`;
    return `${version} at ${placeOf(url)} (${origin})`;
  }

  /** Resolves with the number of keys that were deleted from a server that is not the demo's. */
  async close() {
    await this.crowd?.leave();
    await this.locks?.close();
    try {
      return this.redis && !this.server.ours ? await this.#deleteKeys() : 0;
    } finally {
      this.redis?.close();
      await this.server?.stop();
    }
  }

  async #deleteKeys() {
    const pattern = `${this.prefix}*`;
    let count = 0;
    let cursor = '0';
    do {
      const scan = ['SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000];
      const [next, keys] = await this.redis.sendCommand(scan);
      if (keys.length > 0) count += await this.redis.sendCommand(['DEL', ...keys]);
      cursor = next;
    } while (cursor !== '0');
    return count;
  }
}

/** The address of a server, without its login. */
function placeOf(url) {
  const { protocol, hostname, port, pathname } = new URL(url);
  return protocol === 'unix:' ? pathname : `${hostname}:${port || 6379}`;
}
