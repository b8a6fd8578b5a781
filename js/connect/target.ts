/** Where locks live: the forms of the first argument of `connect`. */

import type { CredentialsSource, LoginText } from './login.js';
import type { TlsOptions } from './tls.js';

/**
 * One server by its parts, which have the names of ioredis; see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ host: '127.0.0.1', port: 6379, password: process.env.REDIS_PASSWORD })
 * ```
 */
export interface ServerTarget {
  /**
   * Host name or IP address.
   *
   * @default '127.0.0.1'
   */
  readonly host?: string | undefined;
  /**
   * From 1 to 65535, as a number or in digits.
   *
   * @default 6379
   */
  readonly port?: number | string | undefined;
  /**
   * The path of a socket, in place of `host` and `port`.
   *
   * @default undefined
   */
  readonly path?: string | undefined;
  /**
   * The ACL user. The `username` of the options overrides it.
   *
   * @default undefined
   */
  readonly username?: LoginText | undefined;
  /**
   * The password. The `password` of the options overrides it.
   *
   * @default undefined
   */
  readonly password?: LoginText | undefined;
  /**
   * Gives both. The login of the options overrides it.
   *
   * @default undefined
   */
  readonly credentials?: CredentialsSource | undefined;
  /**
   * The database, a whole number from 0.
   *
   * @default 0
   */
  readonly db?: number | undefined;
  /**
   * Whether the server speaks TLS, or the options of TLS. The `tls` of the options overrides them.
   *
   * @default false
   */
  readonly tls?: boolean | TlsOptions | undefined;
}

/**
 * A client of ioredis (4 and newer) or node-redis (4 and newer), for one server, Sentinels or a Cluster; see `connect`,
 * which reads its address and does not send commands with it.
 *
 * @example
 * ```ts
 * import { Redis } from 'ioredis'
 *
 * const client = new Redis('redis://127.0.0.1:6379')
 * const locks = await connect(client)
 * client.disconnect()
 * ```
 */
export type RedisClient =
  | {
      /** A client of ioredis has it. */
      defineCommand(name: string, definition: never): unknown;
    }
  | {
      /** A client of node-redis has it. */
      sendCommand(...args: never): unknown;
    };

/**
 * Several servers for one manager, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ quorum: ['redis://a:6379', 'redis://b:6379', 'redis://c:6379'] })
 * ```
 */
export interface QuorumTarget {
  /** The servers, each with its own login and database. All of them that speak TLS have the `tls` of the options. */
  readonly quorum: readonly (string | UrlLike | ServerTarget)[];
}

/**
 * A `URL` object, whichever library its type comes from.
 *
 * @example
 * ```ts
 * const locks = await connect(new URL('redis://127.0.0.1:6379'))
 * ```
 */
export interface UrlLike {
  /** The whole URL. */
  readonly href: string;
}

/**
 * A Redis Cluster, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({ cluster: ['redis://10.0.0.1:6379', 'redis://10.0.0.2:6379'] })
 * ```
 */
export interface ClusterTarget {
  /**
   * Some servers of the Cluster; the manager asks these for the others. The login of the first, or that of the options, is
   * used for all servers. If they speak TLS, it has the `tls` of the options.
   */
  readonly cluster: readonly (string | UrlLike | ServerTarget)[];
}

/**
 * A master that Sentinels watch, see `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect({
 *   sentinels: ['10.0.0.1:26379', '10.0.0.2:26379', '10.0.0.3:26379'],
 *   master: 'mymaster',
 *   password: process.env.REDIS_PASSWORD,
 *   sentinelPassword: process.env.SENTINEL_PASSWORD,
 * })
 * ```
 */
export interface SentinelTarget {
  /**
   * The Sentinels, preferably all of them: URLs (`redis://[user:password@]host[:port]`), `'host:port'`, or
   * `{ host, port }`. The default port is 26379. One Sentinel that answers is enough. If all URLs begin with
   * `rediss://`, the Sentinels and the master speak TLS.
   */
  readonly sentinels: readonly (string | UrlLike | SentinelAddress)[];
  /** The Sentinels' name for the master. */
  readonly master: string;
  /**
   * The ACL user of Sentinels whose URL has no login.
   *
   * @default undefined
   */
  readonly sentinelUsername?: LoginText | undefined;
  /**
   * The password of Sentinels whose URL has no login.
   *
   * @default undefined
   */
  readonly sentinelPassword?: LoginText | undefined;
  /**
   * Gives both.
   *
   * @default undefined
   */
  readonly sentinelCredentials?: CredentialsSource | undefined;
  /**
   * The ACL user of the master and its replicas. The `username` of the options overrides it.
   *
   * @default undefined
   */
  readonly username?: LoginText | undefined;
  /**
   * The password of the master and its replicas. The `password` of the options overrides it.
   *
   * @default undefined
   */
  readonly password?: LoginText | undefined;
  /**
   * Gives both. The login of the options overrides it.
   *
   * @default undefined
   */
  readonly credentials?: CredentialsSource | undefined;
  /**
   * The database, a whole number from 0.
   *
   * @default 0
   */
  readonly db?: number | undefined;
}

/**
 * The address of a Sentinel.
 *
 * @example
 * ```ts
 * const sentinels = [{ host: '10.0.0.1' }, { host: '10.0.0.2', port: 26379 }]
 * const locks = await connect({ sentinels, master: 'mymaster' }).catch((error) => console.error(error.message))
 * ```
 */
export interface SentinelAddress {
  /** Host name or IP address. */
  readonly host: string;
  /**
   * From 1 to 65535.
   *
   * @default 26379
   */
  readonly port?: number | undefined;
}

/**
 * Where locks live: every form of the first argument of `connect`.
 *
 * @example
 * ```ts
 * import { type ConnectTarget, connect } from 'holdfast'
 *
 * const target: ConnectTarget = { host: '127.0.0.1', port: 6379 }
 * const locks = await connect(target)
 * ```
 */
export type ConnectTarget =
  | string
  | UrlLike
  | ServerTarget
  | ClusterTarget
  | SentinelTarget
  | QuorumTarget
  | RedisClient;
