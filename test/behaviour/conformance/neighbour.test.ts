/** A manager believes the server, not messages: all behaviours, beside a neighbour that forges messages. */

import { HauntedHost } from './neighbour.js';
import { serverHosts } from './servers.js';
import { tryAllOn } from './suite.js';

const plain = serverHosts().filter(({ user }) => user === undefined);
for (const host of plain.map((single) => new HauntedHost(single))) tryAllOn(host);
