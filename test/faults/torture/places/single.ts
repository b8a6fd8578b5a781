/** One server, with or without its data after a restart. */

import { SteppedServer } from '../../../support/clock.js';
import { FaultProxy } from '../../../support/proxy.js';
import { RedisServer } from '../../../support/server.js';
import {
  ClockFault,
  networkFaults,
  restart,
  type ServerFault,
  serverFaults,
} from '../server-faults.js';
import { NAMES, type Place } from './place.js';

/** One server that forgets everything when it is killed, or nothing. */
export async function single(persistent: boolean): Promise<Place> {
  const stepped = persistent ? undefined : await SteppedServer.start();
  const server = stepped?.server ?? (await RedisServer.start({ persistent }));
  const proxy = await FaultProxy.start(server.port);
  const restarted: ServerFault = persistent
    ? {
        kind: 'server killed, data kept',
        cause: (scene) => restart(scene, server),
      }
    : {
        kind: 'server killed, data lost',
        cause: (scene) => scene.rift(() => restart(scene, server)),
      };
  const clocks = stepped === undefined ? [] : [new ClockFault(stepped, 5)];
  return {
    targets: [proxy.url],
    options: {},
    names: NAMES,
    quorum: false,
    faults: [
      ...serverFaults([server]),
      ...networkFaults(async () => [proxy]),
      restarted,
      restarted,
      ...clocks,
    ],
    servers: async () => [server],
    async stop() {
      await Promise.all([proxy.stop(), (stepped ?? server).stop()]);
    },
  };
}
