/** A CA for one test file, and servers that speak TLS with its certificates. */

import { after } from 'node:test';
import { Authority, type Certified } from '../../support/certificates.js';
import { RedisServer, type ServerOptions } from '../../support/server.js';

/** The names of every server of these tests. */
export const NAMES = 'DNS:localhost,IP:127.0.0.1';

/** A CA whose files go when the test file ends. */
export function newAuthority(): Authority {
  const authority = new Authority();
  after(() => authority.remove());
  return authority;
}

/** Starts servers, and stops them all in `stopAll`. */
export class Servers {
  readonly #running: RedisServer[] = [];

  constructor(readonly authority: Authority) {}

  /** A server with `certified`, which by default is a good certificate. */
  async start(
    certified: Certified = this.authority.issue(NAMES),
    { client, ...options }: ServerOptions & { client?: Certified } = {},
  ): Promise<RedisServer> {
    const { ca } = this.authority;
    const tls = { server: certified, ca, ...(client && { client }) };
    const server = await RedisServer.start({ ...options, tls });
    this.#running.push(server);
    return server;
  }

  /** A server without TLS. */
  async startPlain(): Promise<RedisServer> {
    const server = await RedisServer.start();
    this.#running.push(server);
    return server;
  }

  async stopAll(): Promise<void> {
    await Promise.all(this.#running.splice(0).map((server) => server.stop()));
  }
}
