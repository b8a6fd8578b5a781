/**
 * A service written for node-redlock 5 goes over to `holdfast/redlock`, and back, one instance after the other
 * and under load; in no moment do two of them hold one lock.
 */

import { after, before, test } from 'node:test';
import { Cluster } from '../../support/cluster.js';
import { RedisServer } from '../../support/server.js';
import { replaceAll, type Servers } from './rolling.js';

const OLD = 'redlock5';
const NEW = 'holdfast/redlock';

let five: RedisServer[];
let cluster: Cluster;

before(async () => {
  five = await RedisServer.startSeveral(5);
  cluster = await Cluster.start();
});

after(async () => {
  await cluster?.stop();
  await Promise.all((five ?? []).map((server) => server.stop()));
});

const PLACES: readonly [where: string, servers: () => Servers][] = [
  ['one server', () => ({ kind: 'servers', urls: five.slice(0, 1).map(({ url }) => url) })],
  ['five servers', () => ({ kind: 'servers', urls: five.map(({ url }) => url) })],
  ['a Cluster', () => ({ kind: 'cluster', urls: cluster.urls })],
];

for (const [where, servers] of PLACES) {
  test(`rolling restart on ${where}: never two at once, and everybody gets on`, async () => {
    await replaceAll(servers(), OLD, NEW);
  });

  test(`the way back on ${where}: never two at once, and everybody gets on`, async () => {
    await replaceAll(servers(), NEW, OLD);
  });
}
