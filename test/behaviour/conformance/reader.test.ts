/** The same promises where the keeper reads all sockets, as it does on Bun and Deno. */

import '../../support/keeper-reads.js';
import { ClusterHost, EmbeddedHost, serverHosts } from './place.js';
import { tryAllOn } from './suite.js';

const [server] = serverHosts();
tryAllOn(new EmbeddedHost());
if (server !== undefined) {
  tryAllOn(server);
  tryAllOn(new ClusterHost(server.binary));
}
