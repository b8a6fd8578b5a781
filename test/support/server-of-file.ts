/** The server that all tests of a file use. */

import { after, before } from 'node:test';
import { closeManagers } from './holdfast.js';
import { RedisServer, type ServerOptions } from './server.js';

/**
 * A server that is started before the tests of this file, and stopped after them when their managers are closed.
 * What needs its URL is set up in `then`: other hooks `before` all tests do not wait for this one.
 */
export function serverOfFile(options?: ServerOptions, then?: () => unknown): RedisServer {
  const server = new RedisServer(options);
  before(async () => {
    await server.startOnFreePort();
    await then?.();
  });
  after(async () => {
    await closeManagers();
    await server.stop();
  });
  return server;
}
