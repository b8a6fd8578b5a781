/** A master that is cut off from its replicas and Sentinels, and that some clients go on using. */

import { FaultProxy } from '../../../support/proxy.js';
import { Sentinels } from '../../../support/sentinels.js';
import { sleep } from '../../../support/wait.js';
import { type ServerFault, undisturbed } from '../server-faults.js';
import { NAMES, type Place } from './place.js';

/**
 * A master and two replicas: when one of these is promoted, it has another to confirm its grants. Every second process
 * hears of the Sentinels through proxies, or does not.
 */
export async function split(replicated: boolean): Promise<Place> {
  const deployment = await Sentinels.start({ replicas: 2, proxied: true });
  const hearsay = await Promise.all(deployment.sentinels.map(({ port }) => FaultProxy.start(port)));
  const late = { ...deployment.target, sentinels: hearsay.map(({ port }) => `127.0.0.1:${port}`) };
  const cut: ServerFault = {
    kind: 'CLIENT KILL',
    cause: async () => (await deployment.master()).killClients(),
  };
  const splits = splitBrain(deployment, hearsay, replicated);
  return {
    targets: [deployment.target, late],
    options: replicated ? { replicas: 1 } : {},
    names: NAMES,
    quorum: false,
    faults: [splits, splits, cut],
    servers: async () => [await deployment.master()],
    async stop() {
      await Promise.all(hearsay.map((proxy) => proxy.stop()));
      await deployment.stop();
    },
  };
}

/** Two masters, each with clients, until the old one is told. */
function splitBrain(
  deployment: Sentinels,
  hearsay: readonly FaultProxy[],
  replicated: boolean,
): ServerFault {
  return {
    kind: 'two masters, both with clients',
    async cause({ dice, rift }) {
      await deployment.inSync();
      const old = await deployment.master();
      const during = async () => {
        for (const way of hearsay) way.blackhole = true;
        old.proxy.sparesClients = true;
        old.proxy.blackhole = true;
        await deployment.failedOver(old);
        await sleep(1_000 + dice.below(5_000));
        for (const way of [old.proxy, ...hearsay]) undisturbed(way);
        await deployment.demoted(old);
        await deployment.inSync();
      };
      return rift(during, { fork: replicated ? 'confirmed' : 'unconfirmed' });
    },
  };
}
