/** Clients of node-redis 2 and 3, which take callbacks. */

import { bag, type ClientParts, text, type Unknown } from './place.js';

/** Whether it is a client of node-redis 2 or 3. @internal */
export function isNodeRedis3(client: Unknown): boolean {
  return typeof client['internal_send_command'] === 'function';
}

/** The parts of a client of node-redis 2 or 3; undefined if it is no such client. @internal */
export function readNodeRedis3(client: Unknown): ClientParts | undefined {
  if (!isNodeRedis3(client)) return undefined;
  const { user, password, auth_pass, db, tls, prefix, rename_commands } = bag(client['options']);
  const { host, port, path } = bag(client['connection_options']);
  return {
    kind: 'node-redis client',
    server: {
      host,
      port,
      path,
      // `auth` and `select` leave their changes beside the options.
      username: text(client['auth_user']) ?? user,
      password: text(client['auth_pass']) ?? password ?? auth_pass,
      db: client['selected_db'] ?? db,
      tls,
    },
    keyPrefix: prefix,
    foreign: { rename_commands },
  };
}
