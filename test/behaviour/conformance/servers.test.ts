/** The promises of holdfast on other servers than those of this machine, such as older and newer ones. */

import { test } from 'node:test';
import { otherServers } from './servers.js';
import { tryAllOn } from './suite.js';

const hosts = otherServers();

test('the servers that HOLDFAST_SERVERS names', (t) => {
  const names = hosts.map(({ name }) => name).join(', ') || 'none; .ci/servers fetches some';
  t.diagnostic(`the behaviours run on ${names}`);
});

for (const host of hosts) tryAllOn(host);
