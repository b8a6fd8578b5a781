/** A Redis Cluster. */

import { Cluster } from '../../../support/cluster.js';
import type { Dice } from '../../../support/dice.js';
import { isPrimary } from '../../../support/replication.js';
import type { RedisServer } from '../../../support/server.js';
import { sleep, until } from '../../../support/wait.js';
import { networkFaults, type ServerFault } from '../server-faults.js';
import type { Place } from './place.js';

/**
 * Primaries with a replica each. A node that is cut off from clients still talks to the other nodes, so no partition alone
 * promotes.
 */
export async function cluster(): Promise<Place> {
  const nodes = await Cluster.start({ replicas: 1, proxied: true });
  // The first three have a server each, the last two share a slot.
  const names = ['a', 'c', 'd', '{t}1', '{t}2'];
  const slots = await Promise.all(names.map((name) => nodes.slotOf(`lock:${name}`)));
  return {
    targets: [{ cluster: nodes.urls }],
    options: {},
    names,
    quorum: false,
    faults: faultsOf(nodes, slots),
    servers: () => nodes.primaries(),
    stop: () => nodes.stop(),
  };
}

function faultsOf(nodes: Cluster, slots: readonly number[]): ServerFault[] {
  const failover = async (
    slot: number,
    hurt: (old: RedisServer) => unknown,
    heal: (old: RedisServer) => unknown,
  ) => {
    const old = await nodes.primaryOf(slot);
    if (!(await hasReplica(old))) return;
    await nodes.inSync(old);
    await hurt(old);
    const primary = await nodes.failedOver(slot, old);
    await heal(old);
    await until(async () => !(await isPrimary(old)), `port ${old.port} to follow`);
    await nodes.inSync(primary);
  };
  /** The replica of a primary that had its last slot moved away goes to another one. */
  const hasReplica = async (primary: RedisServer) => (await nodes.replicasOf(primary)).length > 0;
  const onAll = async (action: (server: RedisServer) => Promise<unknown>) => {
    await Promise.all((await nodes.primaries()).map(action));
  };
  return [
    {
      kind: 'failover, ordered',
      cause: async ({ dice }) => {
        const slot = dice.oneOf(slots);
        if (await hasReplica(await nodes.primaryOf(slot))) await nodes.failOver(slot);
      },
    },
    {
      kind: 'failover, primary killed',
      cause: ({ dice, rift }) =>
        rift(() =>
          failover(
            dice.oneOf(slots),
            (old) => old.kill(),
            (old) => old.start(),
          ),
        ),
    },
    {
      kind: 'failover, primary stopped',
      cause: ({ dice, rift }) =>
        rift(() =>
          failover(
            dice.oneOf(slots),
            (old) => old.pause(),
            (old) => old.resume(),
          ),
        ),
    },
    { kind: 'slot moved', cause: ({ dice }) => moveSlot(nodes, dice.oneOf(slots), dice) },
    {
      kind: 'FLUSHALL',
      cause: ({ rift }) => rift(() => onAll(({ admin }) => admin.flushall())),
    },
    ...networkFaults(async () => (await nodes.primaries()).map(({ proxy }) => proxy)),
    { kind: 'SCRIPT FLUSH', cause: () => onAll(({ admin }) => admin.script('FLUSH')) },
    { kind: 'CLIENT KILL', cause: () => onAll((server) => server.killClients()) },
  ];
}

/** Moves a slot while it is used. */
async function moveSlot(nodes: Cluster, slot: number, dice: Dice): Promise<void> {
  const from = await nodes.primaryOf(slot);
  const others = (await nodes.primaries()).filter((node) => node !== from);
  const move = await nodes.startMove(slot, dice.oneOf(others));
  await sleep(dice.below(300));
  await move.keys();
  await sleep(dice.below(300));
  // The keys that were made meanwhile at the former server of the slot.
  await move.keys();
  await move.finish();
}
