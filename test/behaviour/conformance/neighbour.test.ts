/** Whatever others publish, a manager believes the server alone: all behaviours, beside somebody who forges. */

import { HauntedHost } from './neighbour.js';
import { serverHosts } from './place.js';
import { tryAllOn } from './suite.js';

const plain = serverHosts().filter(({ user }) => user === undefined);
for (const host of plain.map((single) => new HauntedHost(single))) tryAllOn(host);
