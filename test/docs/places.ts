/** One of each place that `connect` knows, under the addresses of the documentation. */

import { Authority } from '../support/certificates.js';
import { Cluster } from '../support/cluster.js';
import { Sentinels } from '../support/sentinels.js';
import { RedisServer } from '../support/server.js';
import type { Surroundings } from './programs.js';

const PASSWORD = 'of-the-server';
const SENTINEL_PASSWORD = 'of-the-sentinels';

export class Places {
  private constructor(
    readonly authority: Authority,
    readonly secure: RedisServer,
    readonly quorum: readonly RedisServer[],
    readonly cluster: Cluster,
    readonly sentinels: Sentinels,
  ) {}

  static async open(): Promise<Places> {
    const authority = new Authority();
    const tls = { server: authority.issue('DNS:localhost,IP:127.0.0.1'), ca: authority.ca };
    return new Places(
      authority,
      await RedisServer.start({ tls, password: PASSWORD }),
      await RedisServer.startSeveral(3),
      await Cluster.start(),
      await Sentinels.start({ password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD }),
    );
  }

  get surroundings(): Surroundings {
    const instead: Record<string, string> = {
      'redis.example.com:6380': `127.0.0.1:${this.secure.port}`,
      '/etc/redis/ca.pem': this.authority.ca.certFile,
    };
    for (const [index, { url }] of this.quorum.entries()) {
      instead[`redis://${'abc'[index]}:6379`] = url;
    }
    for (const [index, { url }] of this.cluster.nodes.entries()) {
      instead[`redis://10.0.0.${index + 1}:6379`] = url;
    }
    for (const [index, { port }] of this.sentinels.sentinels.entries()) {
      instead[`10.0.0.${index + 1}:26379`] = `127.0.0.1:${port}`;
    }
    return { env: { REDIS_PASSWORD: PASSWORD, SENTINEL_PASSWORD }, instead };
  }

  async close(): Promise<void> {
    const servers = [this.secure, ...this.quorum];
    await Promise.all([
      this.cluster.stop(),
      this.sentinels.stop(),
      ...servers.map((s) => s.stop()),
    ]);
    this.authority.remove();
  }
}
