/** Clients of node-redis 2 and 3, which take callbacks. */

import { bag, type Place, prefixOf, refuseSet, text, tlsOf, type Unknown, urlOf } from './place.js';

const CLIENT = 'node-redis client';

/** Whether it is a client of node-redis 2 or 3. @internal */
export function isNodeRedis3(client: Unknown): boolean {
  return typeof client['internal_send_command'] === 'function';
}

/** The place that a client of node-redis 2 or 3 is connected to; undefined if it is no such client. @internal */
export function readNodeRedis3(client: Unknown): Place | undefined {
  if (!isNodeRedis3(client)) return undefined;
  const options = bag(client['options']);
  refuseSet(options, ['rename_commands'], CLIENT);
  const { host, port, path } = bag(client['connection_options']);
  const tls = tlsOf(options['tls'], CLIENT);
  const target = urlOf({
    host,
    port,
    path,
    // What `auth` and `select` have changed stands beside the options.
    username: text(client['auth_user']) ?? options['user'],
    password: text(client['auth_pass']) ?? options['password'] ?? options['auth_pass'],
    db: client['selected_db'] ?? options['db'],
    tls: tls !== undefined,
  });
  return { target, prefix: prefixOf(options['prefix']), ...(tls === undefined ? {} : { tls }) };
}
