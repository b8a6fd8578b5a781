/** A quorum of servers. */

import { SteppedServer } from '../../../support/clock.js';
import { FaultProxy } from '../../../support/proxy.js';
import { RedisServer } from '../../../support/server.js';
import { sleep } from '../../../support/wait.js';
import {
  ClockFault,
  networkFaults,
  restart,
  type ServerFault,
  serverFaults,
} from '../server-faults.js';
import { LEASE_MS, NAMES, type Place } from './place.js';

/** Three independent servers. Without a majority of healthy ones no lock is granted. */
export async function quorum(): Promise<Place> {
  const servers = await RedisServer.startSeveral(3);
  return placeOf(servers, [...serverFaults(servers), ...losses(servers)], () => {
    return Promise.all(servers.map((server) => server.stop()));
  });
}

/**
 * Three whose clocks differ, and that lose nothing: a majority without counters begins at its own clocks, and
 * may leave the one out that was ahead.
 */
export async function quorumOfClocks(): Promise<Place> {
  const stepped = await SteppedServer.start();
  const others = await RedisServer.startSeveral(2);
  const servers = [stepped.server, ...others];
  const keeping = serverFaults(servers).filter(({ kind }) => kind !== 'FLUSHALL');
  return placeOf(servers, [...keeping, new ClockFault(stepped, 3_600)], () => {
    return Promise.all([stepped.stop(), ...others.map((server) => server.stop())]);
  });
}

/** One server after the other forgets all that it knew. */
function losses(servers: readonly RedisServer[]): ServerFault[] {
  const restarted: ServerFault = {
    kind: 'server killed, data lost',
    async cause(scene) {
      await restart(scene, scene.dice.oneOf(servers));
      // The next server forgets when this one has a vote again.
      await sleep(LEASE_MS + 2_000);
    },
  };
  return [restarted, restarted];
}

async function placeOf(
  servers: readonly RedisServer[],
  faults: readonly ServerFault[],
  stop: () => Promise<unknown>,
): Promise<Place> {
  const proxies = await Promise.all(servers.map(({ port }) => FaultProxy.start(port)));
  return {
    targets: [{ quorum: proxies.map(({ url }) => url) }],
    options: { longestLease: LEASE_MS },
    names: NAMES,
    quorum: true,
    faults: [...faults, ...networkFaults(async () => proxies)],
    servers: async () => servers,
    async stop() {
      await Promise.all(proxies.map((proxy) => proxy.stop()));
      await stop();
    },
  };
}
