/** Primaries and the replicas that follow them, as the servers themselves see it. */

import type { RedisServer } from './server.js';

/** The fields of `INFO replication`. */
export async function replicationOf(server: RedisServer): Promise<ReadonlyMap<string, string>> {
  const lines = (await server.admin.info('replication')).split('\r\n');
  return new Map(
    lines.flatMap((line) => (line.includes(':') ? [line.split(':', 2) as [string, string]] : [])),
  );
}

/** Whether a server takes writes, by its own account; it may be the only one to think so. */
export async function isPrimary(server: RedisServer): Promise<boolean> {
  return (await replicationOf(server)).get('role') === 'master';
}

/** Whether replicas follow `primary` and have all that it had written when it was asked. */
export async function isInSync(
  primary: RedisServer,
  replicas: readonly RedisServer[],
): Promise<boolean> {
  const own = await replicationOf(primary);
  const written = Number(own.get('master_repl_offset'));
  // A primary counts on a replica only from its first acknowledgement on, up to a second later.
  const online = [...own.values()].filter((value) => value.includes('state=online')).length;
  const all = await Promise.all(replicas.map((replica) => replicationOf(replica)));
  const follows = all.every(
    (fields) =>
      fields.get('master_port') === String(primary.announced) &&
      fields.get('master_link_status') === 'up' &&
      Number(fields.get('slave_repl_offset')) >= written,
  );
  return follows && online >= replicas.length;
}
