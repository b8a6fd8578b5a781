/** A master and its replica, watched by Sentinels. */

import { Sentinels } from '../../../support/sentinels.js';
import type { RedisServer } from '../../../support/server.js';
import { networkFaults, type ServerFault } from '../server-faults.js';
import { NAMES, type Place } from './place.js';

/** A master that fails over: locks that its replica does not have are lost, unless every lock waits for it. */
export async function sentinel(replicated: boolean): Promise<Place> {
  const deployment = await Sentinels.start({ proxied: true });
  const cut: ServerFault = {
    kind: 'CLIENT KILL',
    cause: async () => (await deployment.master()).killClients(),
  };
  const flush: ServerFault = {
    kind: 'FLUSHALL',
    cause: ({ rift }) => rift(async () => (await deployment.master()).admin.flushall()),
  };
  return {
    targets: [deployment.target],
    options: replicated ? { replicas: 1 } : {},
    names: NAMES,
    quorum: false,
    faults: [
      ...failovers(deployment, replicated),
      ...disturbances(deployment, replicated),
      cut,
      flush,
    ],
    servers: async () => [await deployment.master()],
    stop: () => deployment.stop(),
  };
}

/**
 * Nobody reaches the master, or not well, its replica and the Sentinels neither. What lasts longer than these wait for
 * makes another the master.
 */
function disturbances(deployment: Sentinels, replicated: boolean): ServerFault[] {
  const faults = networkFaults(async () => [(await deployment.master()).proxy]);
  return faults.map(({ kind, cause }) => ({
    kind,
    cause: (scene) => {
      const during = async () => {
        await deployment.inSync();
        await cause(scene);
        await deployment.settled();
      };
      return replicated ? during() : scene.rift(during);
    },
  }));
}

function failovers(deployment: Sentinels, replicated: boolean): ServerFault[] {
  const losing = (during: () => Promise<unknown>): ServerFault['cause'] =>
    replicated ? async () => void (await during()) : ({ rift }) => rift(during);
  /** The fault that `hurt` causes at the master ends when there is a new one. */
  const failover = async (
    hurt: (old: RedisServer) => unknown,
    heal: (old: RedisServer) => unknown,
  ) => {
    await deployment.inSync();
    const old = await deployment.master();
    await hurt(old);
    await deployment.failedOver(old);
    await heal(old);
    await deployment.demoted(old);
    await deployment.inSync();
  };
  return [
    {
      kind: 'failover, ordered',
      cause: losing(async () => {
        const old = await deployment.master();
        await deployment.failOver();
        await deployment.demoted(old);
        await deployment.inSync();
      }),
    },
    {
      kind: 'failover, master killed',
      cause: losing(() =>
        failover(
          (old) => old.kill(),
          (old) => old.start(),
        ),
      ),
    },
    {
      kind: 'failover, master stopped',
      cause: losing(() =>
        failover(
          (old) => old.pause(),
          (old) => old.resume(),
        ),
      ),
    },
  ];
}
