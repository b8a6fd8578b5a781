// What the benchmark itself asks the server, over a connection of its own.

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

  /** CPU time of the server process so far, in µs. */
  async cpu() {
    const info = parse(await this.#client.info('cpu'));
    return (Number(info.used_cpu_user) + Number(info.used_cpu_sys)) * 1e6;
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

  /** Deletes what the benchmark has left: fence counters outlive their locks. */
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
