/**
 * The promises of holdfast, tried on the store inside the process and on every server at hand, so that
 * neither drifts from the other.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClusterHost, EmbeddedHost, type Host, ServerHost, serverHosts } from './place.js';
import { QuorumHost } from './quorum.js';
import { tryAllOn } from './suite.js';

const servers = serverHosts();
const binaries = new Set(servers.map(({ binary }) => binary));
const clusters = [...binaries].map((binary) => new ClusterHost(binary));
const quorums = [...binaries].map((binary) => new QuorumHost(new ServerHost(binary)));
const hosts: Host[] = [new EmbeddedHost(), ...servers, ...clusters, ...quorums];

test('there is a real server to compare the embedded store with', (t) => {
  t.diagnostic(`the behaviours run on ${hosts.map(({ name }) => name).join(', ')}`);
  assert.ok(
    servers.length > 0,
    'none was found: install one (Debian: apt-get install redis-server; macOS: brew install redis), ' +
      'or name a binary in HOLDFAST_REDIS_SERVER',
  );
});

for (const host of hosts) tryAllOn(host);
