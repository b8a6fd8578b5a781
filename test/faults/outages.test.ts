/**
 * A connection that is lost for a little less than two thirds of a lease loses no lock. `HOLDFAST_ROUNDS=50` tries 50
 * locks in each case, and `HOLDFAST_PART=0.64` makes each outage this part of a lease; both print the results.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Cluster } from '../support/cluster.js';
import { NO_NAMES, runWithNames } from '../support/names.js';
import { lossesBy, OUTAGES, type Outage, type Place } from '../support/outages.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';

const { HOLDFAST_ROUNDS, HOLDFAST_PART } = process.env;
/** How many locks are tried in each case. */
const ROUNDS = Number(HOLDFAST_ROUNDS ?? 3);
/** The outage for each lease in ms, as a part of it: what is left of a short lease must be enough on a busy machine. */
const LEASES = new Map([
  [1_000, 0.45],
  [3_000, 0.55],
  [5_000, 0.6],
  [10_000, 0.62],
  [30_000, 0.64],
]);

/** The longest one takes half a minute. */
const leases = [...LEASES.keys()].filter((ttl) => ttl <= 10_000 || HOLDFAST_ROUNDS !== undefined);

const ended: (() => Promise<unknown>)[] = [];
after(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

/** Tries every lease, all at once if each has a place of its own. */
async function tryAll(
  name: string,
  outage: Outage,
  leases: readonly number[],
  place: () => Promise<Place>,
): Promise<void> {
  const tries = leases.map(async (ttl) => {
    const [where, part] = [await place(), Number(HOLDFAST_PART ?? LEASES.get(ttl))];
    // Short leases are tried often: more at once would keep the proxies busy, which are in this process.
    const atOnce = ttl < 3_000 ? 1 : ttl < 10_000 ? 3 : 10;
    let lost = 0;
    for (let left = ROUNDS; left > 0; left -= atOnce) {
      lost += await lossesBy(outage, where, { ttl, part, count: Math.min(atOnce, left) });
    }
    return `${name}, ttl ${ttl} ms, away for ${part} of it: ${lost} of ${ROUNDS} lost`;
  });
  const results = await Promise.all(tries);
  if (HOLDFAST_ROUNDS !== undefined) console.log(results.join('\n'));
  assert.deepEqual(
    results.filter((result) => !result.includes(': 0 of')),
    [],
  );
}

/** A proxy of its own in front of each server. */
async function proxies(servers: readonly RedisServer[]): Promise<FaultProxy[]> {
  const all = await Promise.all(servers.map(({ port }) => FaultProxy.start(port)));
  ended.push(...all.map((proxy) => () => proxy.stop()));
  return all;
}

test('one server that is away for a part of a lease loses no lock', async () => {
  const server = await RedisServer.start();
  ended.push(() => server.stop());
  const place = async () => {
    const [proxy] = (await proxies([server])) as [FaultProxy];
    return { target: proxy.url, proxies: [proxy] };
  };
  const tries = Object.entries(OUTAGES).map(([name, outage]) =>
    tryAll(`one server, ${name}`, outage, leases, place),
  );
  await Promise.all(tries);
});

test('a quorum that is away for a part of a lease loses no lock', async () => {
  const servers = await RedisServer.startSeveral(3);
  ended.push(...servers.map((server) => () => server.stop()));
  const place = async () => {
    const all = await proxies(servers);
    const target = { quorum: all.map(({ url }) => url) };
    return { target, options: { longestLease: 0 }, proxies: all };
  };
  const tries = (['reset', 'black hole'] as const).map((name) =>
    tryAll(`quorum, ${name}`, OUTAGES[name], [1_000, 3_000, 10_000], place),
  );
  await Promise.all(tries);
});

test('a Cluster that is away for a part of a lease loses no lock', async (t) => {
  const cluster = await Cluster.start({ proxied: true });
  ended.push(() => cluster.stop());
  const proxies = cluster.nodes.map(({ proxy }) => proxy);
  const place = { target: { cluster: cluster.urls }, proxies };
  for (const name of ['closing', 'refusal', 'black hole'] as const) {
    // All share these proxies.
    await t.test(name, () => tryAll(`Cluster, ${name}`, OUTAGES[name], [3_000], async () => place));
  }
});

test('a name that does not resolve for a part of a lease loses no lock', {
  skip: NO_NAMES,
}, async (t) => {
  const { code, stdout, stderr } = await runWithNames(join(__dirname, 'unresolved.js'));
  assert.equal(code, 0, `${stdout}${stderr}`);
  t.diagnostic(stdout);
});
