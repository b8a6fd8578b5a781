/** A quorum of servers. */

import { SteppedServer } from '../../support/clock.js';
import { FaultProxy } from '../../support/proxy.js';
import { RedisServer } from '../../support/server.js';
import { sleep } from '../../support/wait.js';
import {
  ClockFault,
  networkFaults,
  restart,
  type ServerFault,
  serverFaults,
} from '../server-faults.js';
import { LEASE_MS, NAMES, type Place } from './place.js';

/** Three servers that know nothing of each other. A majority of them is well, or nobody gets anything. */
export async function quorum(): Promise<Place> {
  const stepped = await SteppedServer.start();
  const others = await RedisServer.startSeveral(2);
  const servers = [stepped.server, ...others];
  const proxies = await Promise.all(servers.map(({ port }) => FaultProxy.start(port)));
  const restarted: ServerFault = {
    kind: 'server killed, data lost',
    async cause(scene) {
      // Not the one whose clock is set: it would count that as uptime.
      await restart(scene, scene.dice.oneOf(others));
      // The next server forgets when this one has a vote again.
      await sleep(LEASE_MS + 2_000);
    },
  };
  return {
    targets: [{ quorum: proxies.map(({ url }) => url) }],
    options: { longestLease: LEASE_MS },
    names: NAMES,
    quorum: true,
    faults: [
      ...serverFaults(servers),
      ...networkFaults(async () => proxies),
      restarted,
      restarted,
      new ClockFault(stepped, 3_600, false),
    ],
    servers: async () => servers,
    async stop() {
      await Promise.all(proxies.map((proxy) => proxy.stop()));
      await Promise.all([stepped.stop(), ...others.map((server) => server.stop())]);
    },
  };
}
