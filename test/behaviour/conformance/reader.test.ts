/** The same promises where the keeper reads all sockets, as it does on Bun and Deno. */

import '../../support/keeper-reads.js';
import { EmbeddedHost } from './place.js';
import { ClusterHost, serverHosts } from './servers.js';
import { tryAllOn } from './suite.js';

const [server] = serverHosts();
tryAllOn(new EmbeddedHost());
if (server !== undefined) {
  tryAllOn(server);
  tryAllOn(new ClusterHost(server.binary));
}
