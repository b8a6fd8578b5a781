// What the benchmark itself asks the server, over a connection of its own.

import { Redis } from 'ioredis';

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

  async deleteAll(match) {
    for await (const keys of this.#client.scanStream({ match, count: 1000 })) {
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
