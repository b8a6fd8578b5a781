/** The locks of a quorum, by the votes of its servers. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closeManagers, connect, type LockManager } from '../../support/holdfast.js';
import { threeServers } from '../../three-servers.js';

interface View {
  readonly name: string;
  readonly mode: string | null;
  readonly holders: readonly { readonly label: string | null; readonly lease: number | null }[];
  readonly votes: readonly { readonly by: string | null; readonly failure: string | null }[];
}

interface Internals {
  listVotes(servers: readonly { server: string; locks: LockManager }[]): Promise<View[]>;
}

// It is internal: it is reached by path, past the package's exports.
const { listVotes } = require('../../../../dist/internals.js') as Internals;

const three = threeServers();

async function each(): Promise<{ server: string; locks: LockManager }[]> {
  const urls = three.servers.map(({ url }) => url);
  return Promise.all(
    urls.map(async (url) => ({ server: url, locks: await connect(url, { commandTimeout: 500 }) })),
  );
}

test('a hold lasts for as long as a majority keeps it, and has the label that its caller gave', async (t) => {
  t.after(closeManagers);
  const locks = await connect({ quorum: three.servers.map(({ url }) => url) }, { longestLease: 0 });
  const held = { ttl: 600_000, renew: false };
  await locks.acquire('labelled', { ...held, label: 'night.run' });
  await locks.acquire('plain', held);
  for (const [i, { admin }] of three.servers.entries()) {
    await admin.pexpire('lock:plain', 100_000 * (i + 1));
  }
  const [labelled, plain] = await listVotes(await each());
  assert.deepEqual(
    [labelled, plain].map((view) => [view?.name, view?.mode]),
    [
      ['labelled', 'exclusive'],
      ['plain', 'exclusive'],
    ],
  );
  assert.equal(labelled?.holders[0]?.label, 'night.run');
  // By default a label is the host and the process.
  assert.match(`${plain?.holders[0]?.label}`, new RegExp(`^.+\\.${process.pid}$`));
  const lease = plain?.holders[0]?.lease ?? 0;
  assert.ok(lease > 100_000 && lease <= 200_000, `${lease}`);
  await three.server.admin.persist('lock:plain');
  const [, kept] = await listVotes(await each());
  const rest = kept?.holders[0]?.lease ?? 0;
  assert.ok(rest > 200_000 && rest <= 300_000, `${rest}`);
});

test('nobody holds a lock that no majority votes for; a server that fails has no vote', async (t) => {
  t.after(closeManagers);
  const voters = await each();
  const [first, second, third] = voters.map(({ locks }) => locks);
  const held = { ttl: 600_000, renew: false };
  await first?.acquire('split', { ...held, label: 'a' });
  await second?.acquire('split', { ...held, label: 'b' });
  await third?.acquire('one', held);
  const views = await listVotes(voters);
  assert.deepEqual(
    views.map(({ name, mode, holders }) => [name, mode, holders.length]),
    [
      ['one', null, 0],
      ['split', null, 0],
    ],
  );
  const [one, split] = views;
  assert.deepEqual(
    one?.votes.map(({ by }) => by !== null),
    [false, false, true],
  );
  const [a, b, c] = split?.votes.map(({ by }) => by) ?? [];
  assert.ok(a !== b && a !== null && b !== null && c === null);

  await third?.close();
  const [later] = await listVotes(voters);
  assert.equal(later?.name, 'split');
  assert.deepEqual(
    later?.votes.map(({ failure }) => failure !== null),
    [false, false, true],
  );
  await second?.close();
  await assert.rejects(listVotes(voters), { code: 'ERR_LOCK_CLOSED' });
});
