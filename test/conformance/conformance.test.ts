/**
 * What holdfast promises, tried on the store inside the process and on every server at hand, so that
 * neither drifts from the other.
 */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { openOperations } from '../support/holdfast.js';
import { ARGUMENTS } from './arguments.js';
import { CLOSING } from './closing.js';
import { FENCES } from './fences.js';
import { HOLDING } from './holding.js';
import { LINE } from './line.js';
import { ClusterHost, EmbeddedHost, type Host, serverHosts, Visit } from './place.js';
import { REFUSALS } from './refusals.js';
import { REPORTS } from './reports.js';
import { TAKING } from './taking.js';
import { UNDER_LOCK } from './under-lock.js';
import { WAITING } from './waiting.js';

const BEHAVIOURS = {
  ...TAKING,
  ...HOLDING,
  ...UNDER_LOCK,
  ...WAITING,
  ...LINE,
  ...FENCES,
  ...CLOSING,
  ...REFUSALS,
  ...REPORTS,
  ...ARGUMENTS,
};

const servers = serverHosts();
const clusters = servers.map(({ binary }) => new ClusterHost(binary));
const hosts: Host[] = [new EmbeddedHost(), ...servers, ...clusters];

test('there is a real server to compare the embedded store with', (t) => {
  t.diagnostic(`the behaviours run on ${hosts.map(({ name }) => name).join(', ')}`);
  assert.ok(
    servers.length > 0,
    'none was found: install one (Debian: apt-get install redis-server; macOS: brew install redis), ' +
      'or name binaries in HOLDFAST_SERVERS, separated by colons',
  );
});

for (const host of hosts) {
  describe(`on ${host.name}`, () => {
    before(() => host.start());
    after(() => host.stop());
    for (const [title, behave] of Object.entries(BEHAVIOURS)) {
      test(title, async () => {
        const visit = new Visit(host);
        try {
          await behave(visit);
        } finally {
          await visit.end();
        }
        assert.equal(openOperations(), 0, 'no promise may be left open');
        await host.quiet?.();
      });
    }
  });
}
