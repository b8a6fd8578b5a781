/** The promises of holdfast on every server at hand, so that none drifts from the store inside the process. */

import { test } from 'node:test';
import type { Host } from './place.js';
import { QuorumHost } from './quorum.js';
import { ClusterHost, ServerHost, serverHosts } from './servers.js';
import { tryAllOn } from './suite.js';

const servers = serverHosts();
const binaries = new Set(servers.map(({ binary }) => binary));
const clusters = [...binaries].map((binary) => new ClusterHost(binary));
const quorums = [...binaries].map((binary) => new QuorumHost(new ServerHost(binary)));
const hosts: Host[] = [...servers, ...clusters, ...quorums];

test('the servers of this machine', (t) => {
  t.diagnostic(`the behaviours run on ${hosts.map(({ name }) => name).join(', ')}`);
});

for (const host of hosts) tryAllOn(host);
