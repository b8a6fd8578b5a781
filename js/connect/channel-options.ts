/** Writes endpoints and limits out for the core. */

import type { Given } from '../base/checks.js';
import type { ChannelOptions } from '../native/channel.js';
import { REPLICAS_MAJORITY } from '../native/records.js';
import type { AskedLogins } from './asked-logins.js';
import type { Endpoints } from './endpoints.js';
import type { BesideOldCode, CheckedOptions } from './options.js';
import { knownTls } from './tls.js';

/** The default of `serverTimeout`. */
const SERVER_TIMEOUT_MS = 100;

/** The options of the manager `client` for the core, which asks `logins` for what functions give. @internal */
export function channelOptions(
  client: string,
  where: Endpoints,
  limits: CheckedOptions,
  logins: AskedLogins,
): ChannelOptions {
  const options = {
    client,
    prefix: limits.prefix,
    ...(where.cluster === null ? {} : { cluster: [...where.cluster] }),
    ...(where.sentinels === null ? {} : { sentinels: sentinelOptions(where, logins) }),
    ...(where.quorum === null ? {} : { quorum: quorumOptions(where.quorum, limits, logins) }),
    ...optional('master', where.master),
    ...addressOf(where),
    ...optional('memory', where.memory),
    ...(where.tls === null ? {} : { tls: knownTls(where.tls) }),
    // A quorum logs in to its servers alone.
    ...(where.quorum === null ? logins.optionsOf(where, where.tls) : {}),
    clientName: limits.clientName,
    connectTimeout: limits.connectTimeout,
    commandTimeout: limits.commandTimeout,
    // An idle lock is held, and old code finds only a free one.
    lingerMax: limits.besideOldCode === undefined ? limits.lingerMax : 0,
    ...pollingOptions(limits.besideOldCode),
    ...(limits.replicas === undefined
      ? {}
      : { replicas: limits.replicas === 'majority' ? REPLICAS_MAJORITY : limits.replicas }),
  };
  return logins.any ? { ...options, askLogin: logins.ask } : options;
}

function addressOf({ host, port, path, db }: Endpoints) {
  return { ...optional('host', host), port, ...optional('path', path), db };
}

function sentinelOptions({ sentinels, tls }: Endpoints, logins: AskedLogins) {
  return (sentinels ?? []).map(({ host, port, ...login }) => {
    return { host, port, ...logins.optionsOf(login, tls) };
  });
}

function quorumOptions(
  servers: readonly Endpoints[],
  { serverTimeout = SERVER_TIMEOUT_MS, ttl, longestLease = ttl }: CheckedOptions,
  logins: AskedLogins,
) {
  return {
    servers: servers.map((server) => ({
      label: server.label,
      ...addressOf(server),
      ...logins.optionsOf(server, server.tls),
      tls: server.tls !== null,
    })),
    serverTimeout,
    longestLease,
  };
}

function pollingOptions(beside: Given<BesideOldCode> | undefined): Pick<ChannelOptions, 'polling'> {
  if (beside === undefined) return {};
  const { retryDelay, retryJitter = retryDelay / 2 } = beside;
  return { polling: { least: retryDelay - retryJitter, most: retryDelay + retryJitter } };
}

function optional<K extends string>(key: K, value: string | null): { [P in K]?: string } {
  return value === null ? {} : ({ [key]: value } as { [P in K]?: string });
}
