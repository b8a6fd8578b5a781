// The benchmark's own requests to the server, over a connection of its own.

import { Redis } from 'ioredis';
import { NAMES } from './names.mjs';

export class Admin {
  #client;

  static async connect(url) {
    const admin = new Admin();
    admin.#client = new Redis(url, { lazyConnect: true });
    await admin.#client.connect();
    return admin;
  }

  /**
   * The server's work so far: CPU time in µs, commands (inside scripts too), bytes from and to all clients.
   * This request counts too.
   */
  async work() {
    const info = parse(await this.#client.info('all'));
    const calls = (key) => Number(/calls=(\d+)/.exec(info[key])?.[1]);
    const stats = Object.keys(info).filter((key) => /^cmdstat_(?!info)/.test(key));
    return {
      cpu: (Number(info.used_cpu_user) + Number(info.used_cpu_sys)) * 1e6,
      commands: stats.reduce((sum, key) => sum + calls(key), 0),
      bytes: Number(info.total_net_input_bytes) + Number(info.total_net_output_bytes),
    };
  }

  /** Bytes that the data take. */
  async memory() {
    return Number(parse(await this.#client.info('memory')).used_memory_dataset);
  }

  /** Bytes that a hand-written lock of such a name takes: a string with an expiry, and nothing else. */
  async plainStrings(names) {
    const keys = names.slice(0, 10_000).map((name) => `${name}:plain`);
    const before = await this.memory();
    const set = this.#client.pipeline();
    for (const key of keys) set.set(key, 'a-token-of-32-characters-or-some', 'PX', 600_000);
    await set.exec();
    const bytes = ((await this.memory()) - before) / keys.length;
    await this.#client.unlink(...keys);
    return bytes;
  }

  /** How many connections were made so far. */
  async connections() {
    return Number(parse(await this.#client.info('stats')).total_connections_received);
  }

  async version() {
    const info = parse(await this.#client.info('server'));
    return info.valkey_version === undefined
      ? `Redis ${info.redis_version}`
      : `Valkey ${info.valkey_version}`;
  }

  /** How many of these keys exist. */
  exists(keys) {
    return this.#client.exists(...keys);
  }

  /** How often each command ran so far, as `{ set: 12, … }`, inside of scripts included. */
  async commands() {
    const stats = Object.entries(parse(await this.#client.info('commandstats')));
    return Object.fromEntries(
      stats.map(([key, line]) => [
        key.replace('cmdstat_', ''),
        Number(/calls=(\d+)/.exec(line)?.[1]),
      ]),
    );
  }

  /** Deletes the keys that the benchmark has left: fence counters outlive their locks. */
  async deleteAll() {
    for await (const keys of this.#client.scanStream({ match: `*${NAMES}*`, count: 1000 })) {
      if (keys.length > 0) await this.#client.unlink(...keys);
    }
  }

  close() {
    this.#client.disconnect();
  }
}

function parse(info) {
  const lines = info.split('\r\n').filter((line) => line.includes(':'));
  return Object.fromEntries(lines.map((line) => line.split(/:(.*)/s, 2)));
}
