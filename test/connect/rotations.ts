/** Passwords that change under locks that are held and waited for, on every kind of target. */

import { after, test } from 'node:test';
import type { ConnectOptions, ConnectTarget } from 'holdfast';
import { Cluster } from '../support/cluster.js';
import { Sentinels } from '../support/sentinels.js';
import { RedisServer } from '../support/server.js';
import { Rotation, type Scale, survives } from './rotation.js';

interface Place {
  readonly target: ConnectTarget;
  readonly servers: readonly RedisServer[];
  readonly options?: ConnectOptions;
  stop(): Promise<unknown>;
}

const PLACES = {
  'one server': async (args: readonly string[]): Promise<Place> => {
    const server = await RedisServer.start({ args });
    return { target: server.url, servers: [server], stop: () => server.stop() };
  },
  Cluster: async (args: readonly string[]): Promise<Place> => {
    const cluster = await Cluster.start({ args });
    return {
      target: { cluster: cluster.urls },
      servers: cluster.nodes,
      stop: () => cluster.stop(),
    };
  },
  Sentinels: async (args: readonly string[]): Promise<Place> => {
    const deployment = await Sentinels.start({ args });
    const { target, servers, sentinels } = deployment;
    return { target, servers: [...servers, ...sentinels], stop: () => deployment.stop() };
  },
  quorum: async (args: readonly string[]): Promise<Place> => {
    const servers = await RedisServer.startSeveral(3, { args });
    const stop = () => Promise.all(servers.map((server) => server.stop()));
    const options = { longestLease: 0 };
    return { target: { quorum: servers.map(({ url }) => url) }, servers, options, stop };
  },
};

const ended: (() => Promise<unknown>)[] = [];

after(async () => {
  for (const end of ended) await end();
});

export type Kind = keyof typeof PLACES;

export const KINDS = Object.keys(PLACES) as readonly Kind[];

/** A minute for each protocol. */
export const FULL: Scale = { held: 1_000, waiters: 100, rotations: 60, pause: 1_000 };

/** A test for each protocol on this kind of target. */
export function rotations(kind: Kind, scale: Scale): void {
  for (const [protocol, args] of [
    ['RESP3', []],
    ['RESP2', ['--rename-command', 'HELLO', '']],
  ] as const) {
    test(`rotation: ${kind}, ${protocol}: nothing is lost`, async () => {
      const place = await PLACES[kind](args);
      ended.push(() => place.stop());
      // So that open connections also log in again.
      const rotation = await new Rotation(place.servers, scale.pause * 3).begin();
      const { target, options = {} } = place;
      const own = kind === 'Sentinels' ? { sentinelCredentials: rotation.credentials } : {};
      await survives(rotation, { ...spread(target), ...own } as ConnectTarget, options, scale);
    });
  }
}

function spread(target: ConnectTarget): object {
  return typeof target === 'string'
    ? { host: new URL(target).hostname, port: new URL(target).port }
    : target;
}
