/** Where locks live in the campaign, and what can happen there. */

import type { ConnectOptions } from 'holdfast';
import { SteppedServer } from '../support/clock.js';
import { Cluster } from '../support/cluster.js';
import { quiet } from '../support/crew.js';
import type { ConnectTarget } from '../support/holdfast.js';
import { FaultProxy } from '../support/proxy.js';
import { isPrimary } from '../support/replication.js';
import { Sentinels } from '../support/sentinels.js';
import { RedisServer } from '../support/server.js';
import { sleep, until } from '../support/wait.js';
import {
  ClockFault,
  networkFaults,
  restart,
  type ServerFault,
  serverFaults,
} from './server-faults.js';

/** The longest lease that anybody asks for, in ms. */
export const LEASE_MS = 1_500;
/** For a side key of somebody who died; see `docs/protocol.md`. */
const QUIET_MS = 45_000;

/** Servers that run, and how to get there. */
export interface Place {
  readonly target: ConnectTarget;
  readonly options: ConnectOptions;
  readonly names: readonly string[];
  /** It has exclusive locks alone, and no line of waiters. */
  readonly quorum: boolean;
  readonly faults: readonly ServerFault[];
  /** The servers that have locks now. */
  servers(): Promise<readonly RedisServer[]>;
  stop(): Promise<void>;
}

const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

/** One server that forgets everything when it is killed, or nothing. */
async function single(persistent: boolean): Promise<Place> {
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
  const clocks = stepped === undefined ? [] : [new ClockFault(stepped, 5, true)];
  return {
    target: proxy.url,
    options: {},
    names: NAMES,
    quorum: false,
    faults: [...serverFaults([server]), ...networkFaults([proxy]), restarted, restarted, ...clocks],
    servers: async () => [server],
    async stop() {
      await Promise.all([proxy.stop(), (stepped ?? server).stop()]);
    },
  };
}

/** A master that fails over: what its replica has not got is lost, unless every lock waits for it. */
async function sentinel(replicated: boolean): Promise<Place> {
  const deployment = await Sentinels.start();
  const losing = (during: () => Promise<unknown>): ServerFault['cause'] =>
    replicated ? async () => void (await during()) : ({ rift }) => rift(during);
  /** What `hurt` does to the master is over when there is a new one. */
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
  const failovers: ServerFault[] = [
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
  const masters: ServerFault = {
    kind: 'CLIENT KILL',
    cause: async () => (await deployment.master()).killClients(),
  };
  const flush: ServerFault = {
    kind: 'FLUSHALL',
    cause: ({ rift }) => rift(async () => (await deployment.master()).admin.flushall()),
  };
  return {
    target: deployment.target,
    options: replicated ? { replicas: 1 } : {},
    names: NAMES,
    quorum: false,
    faults: [...failovers, masters, masters, flush],
    servers: async () => [await deployment.master()],
    stop: () => deployment.stop(),
  };
}

/** Primaries with a replica each. */
async function cluster(): Promise<Place> {
  const nodes = await Cluster.start({ replicas: 1 });
  // The first three have a server each, the last two share a slot.
  const names = ['a', 'c', 'd', '{t}1', '{t}2'];
  const slots = await Promise.all(names.map((name) => nodes.slotOf(`lock:${name}`)));
  const failover = async (
    slot: number,
    hurt: (old: RedisServer) => unknown,
    heal: (old: RedisServer) => unknown,
  ) => {
    const old = await nodes.primaryOf(slot);
    await nodes.inSync(old);
    await hurt(old);
    const primary = await nodes.failedOver(slot, old);
    await heal(old);
    await until(async () => !(await isPrimary(old)), `port ${old.port} to follow`);
    await nodes.inSync(primary);
  };
  const onAll = async (action: (server: RedisServer) => Promise<unknown>) => {
    await Promise.all((await nodes.primaries()).map(action));
  };
  const faults: ServerFault[] = [
    {
      kind: 'failover, ordered',
      cause: async ({ dice }) => void (await nodes.failOver(dice.oneOf(slots))),
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
    {
      kind: 'slot moved',
      async cause({ dice }) {
        const slot = dice.oneOf(slots);
        const from = await nodes.primaryOf(slot);
        const others = (await nodes.primaries()).filter((node) => node !== from);
        const move = await nodes.startMove(slot, dice.oneOf(others));
        await sleep(dice.below(300));
        await move.keys();
        await sleep(dice.below(300));
        // What was made meanwhile where the slot was.
        await move.keys();
        await move.finish();
      },
    },
    {
      kind: 'FLUSHALL',
      cause: ({ rift }) => rift(() => onAll(({ admin }) => admin.flushall())),
    },
    { kind: 'SCRIPT FLUSH', cause: () => onAll(({ admin }) => admin.script('FLUSH')) },
    { kind: 'CLIENT KILL', cause: () => onAll((server) => server.killClients()) },
  ];
  return {
    target: { cluster: nodes.urls },
    options: {},
    names,
    quorum: false,
    faults,
    servers: () => nodes.primaries(),
    stop: () => nodes.stop(),
  };
}

/** Three servers that know nothing of each other. A majority of them is well, or nobody gets anything. */
async function quorum(): Promise<Place> {
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
    target: { quorum: proxies.map(({ url }) => url) },
    options: { longestLease: LEASE_MS },
    names: NAMES,
    quorum: true,
    faults: [
      ...serverFaults(servers),
      ...networkFaults(proxies),
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

/** All there are, by what they are called. */
export const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  single: () => single(false),
  persistent: () => single(true),
  sentinel: () => sentinel(false),
  replicas: () => sentinel(true),
  cluster,
  quorum,
};

/** What is left when nobody is there any more: anything but fences, and a fence without an end. */
export async function leftovers(place: Place, patienceMs = QUIET_MS): Promise<string[]> {
  const servers = await place.servers();
  const found = await Promise.all(
    servers.map(async (server) => {
      try {
        await quiet(server, patienceMs);
      } catch (error) {
        return [(error as Error).message];
      }
      const entries = Object.entries(await server.keyspace());
      return entries.filter(([, { ttl }]) => ttl < 0).map(([key]) => `${key} never ends`);
    }),
  );
  return found.flat();
}
