import { setTimeout as sleep } from 'node:timers/promises';
import type { Given } from '../base/checks.js';
import {
  argumentError,
  isUnreachable,
  LockConnectionError,
  LockError,
  LockServerError,
} from '../base/errors.js';
import { type ErrorContext, toError } from '../lock/outcome.js';
import { LockManager } from '../manager/manager.js';
import { defaultTargetWarning } from '../manager/warnings.js';
import { native } from '../native/addon.js';
import { type ChannelOptions, NativeChannel } from '../native/channel.js';
import { type Outcome, OutcomeCode, REPLICAS_MAJORITY } from '../native/records.js';
import { AskedLogins } from './asked-logins.js';
import { checkTarget, isDefaultTarget } from './check-target.js';
import { isClient } from './client.js';
import { readClient } from './clients/read-clients.js';
import { type CredentialsSource, type Login, NO_LOGIN } from './credentials.js';
import {
  type BesideOldCode,
  type CheckedOptions,
  type ConnectOptions,
  checkConnectOptions,
} from './options.js';
import { checkLogin, type Sentinel, type Target } from './parsed-target.js';
import type { ConnectTarget } from './target.js';
import { knownTls } from './tls.js';

/**
 * Connects to a Redis (6.2 or newer) or Valkey server, or to a store inside this process.
 *
 * @param target - `redis://[user:password@]host[:port][/db]`, `valkey://…`, with TLS `rediss://…` or `valkeys://…`,
 *   `unix:///path/to/socket[?db=1&user=…&pass=…]`, or `memory:` for unit tests, a store of this manager alone. The
 *   managers of this process that connect to the same `memory:name` share a store, as long as one of them is open.
 *   `{ cluster: [urls] }` is a Redis Cluster, `{ sentinels: [urls], master }` is the server that Sentinels name, and
 *   `{ quorum: [url, url, url] }` are three or more independent servers, of which a majority decides (Redlock).
 *   `{ host, port, path, username, password, db, tls }` is one server by its parts. From a client of ioredis or
 *   node-redis, `connect` reads the address, login, TLS, database and `keyPrefix`. Keys begin with the `keyPrefix`, and
 *   then `prefix`. `connect` opens its own connection, and does not use or change the client. The default is the
 *   environment variable `HOLDFAST_URL`, then `REDIS_URL`, then `redis://127.0.0.1:6379`.
 * @throws LockConnectionError if the server cannot be reached within `connectTimeout`, and is not there within
 *   `waitForServer` either, or the TLS handshake fails; with Sentinels, the message has the cause for each of them.
 * @throws LockQuorumError if no majority of a quorum can be reached.
 * @throws LockServerError if the server refuses the login, or is a Sentinel.
 * @throws TypeError, RangeError if an argument is invalid.
 *
 * @example
 * ```ts
 * import { connect } from 'holdfast'
 * const locks = await connect('redis://127.0.0.1:6379')
 * ```
 */
export async function connect(
  target?: ConnectTarget,
  options?: ConnectOptions,
): Promise<LockManager> {
  let prepared = prepare(target, options);
  const end = performance.now() + prepared.checked.waitForServer;
  for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
    try {
      return await connectOnce(target, prepared);
    } catch (error) {
      // The last attempt begins as the time ends.
      const left = end - performance.now();
      if (left <= 0 || !mayPass(error, prepared)) throw error;
      await sleep(Math.min(pause, left));
    }
    prepared = prepare(target, options);
  }
}

/** The times between two attempts to reach a server that is not up yet, in ms. */
const PAUSE_MS = 20;
const PAUSE_MS_MAX = 500;

/** Whether another attempt may succeed: the server is not up yet, or a password is being changed there. */
function mayPass(error: unknown, { logins }: Prepared): boolean {
  const isRefused = error instanceof LockServerError && error.serverCode === 'WRONGPASS';
  return isUnreachable(error) || (isRefused && logins.changes);
}

/** How the system's error names a server that is not up. */
const NOT_UP = /refused|lookup|resolve|no such file/i;

async function connectOnce(
  target: ConnectTarget | undefined,
  { context, checked, options: channelOptions, logins }: Prepared,
): Promise<LockManager> {
  let channel: NativeChannel | undefined;
  const outcome = await new Promise<Outcome>((opened) => {
    const ended = () => logins.end();
    channel = startable(context, () => new NativeChannel(channelOptions, opened, ended));
  });
  if (outcome.code !== OutcomeCode.Done) {
    logins.end();
    throw advised(toError(outcome, context, 'connect to'));
  }
  const warnings = isDefaultTarget(target) ? [defaultTargetWarning(context.server)] : [];
  return LockManager.of(channel as NativeChannel, context, checked, warnings);
}

/** The error of a server that is not up, with what to do if it starts later. */
function advised(error: LockError): LockError {
  if (!isUnreachable(error) || !NOT_UP.test(error.message)) return error;
  error.message +=
    "; if it starts later, connect waits for it with the option waitForServer, as in '30s'";
  return error;
}

/** The target and the options, checked. */
interface Prepared {
  readonly context: ErrorContext;
  readonly checked: CheckedOptions;
  /** The options for the core. */
  readonly options: ChannelOptions;
  /** The logins that it asks for. */
  readonly logins: AskedLogins;
}

/** Checks the arguments of `connect`. @internal */
export function prepare(target: unknown, options: ConnectOptions | undefined): Prepared {
  const read = isClient(target) ? readClient(target, 'the client') : undefined;
  const named = checkTarget(read?.target ?? target);
  const where = read?.credentials === undefined ? named : withCredentials(named, read.credentials);
  const own = checkConnectOptions(options);
  const { tls = where.tlsOptions ?? read?.tls } = own;
  const prefix = (read?.prefix ?? '') + own.prefix;
  const checked = { ...own, prefix, ...(tls === undefined ? {} : { tls }) };
  const alone = where.memory === null && where.cluster === null && where.quorum === null;
  if (checked.replicas !== undefined && !alone) {
    const message = `options.replicas is for one server and its replicas, not for ${where.label}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  if (checked.tls !== undefined && !where.tls) {
    const message = `options.tls needs a URL that begins with rediss:// or valkeys://, got ${where.label}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  for (const option of ['serverTimeout', 'longestLease'] as const) {
    if (options?.[option] !== undefined && where.quorum === null) {
      const message = `options.${option} is for a quorum, not for ${where.label}`;
      throw argumentError('ERR_INVALID_ARG_VALUE', message);
    }
  }
  for (const server of where.quorum ?? [where]) checkLogin(loginOf(server, checked), server.label);
  const client = native.Bridge.newClient();
  const servers = (where.quorum ?? []).map(({ label }) => label);
  const { label } = checked;
  const context = { client, label, server: where.label, sharded: where.cluster !== null, servers };
  const logins = new AskedLogins();
  return { context, checked, options: channelOptions(client, where, checked, logins), logins };
}

/** A target whose servers are logged in to with the credentials of a client. */
function withCredentials(target: Target, credentials: CredentialsSource): Target {
  return { ...target, ...NO_LOGIN, credentials };
}

/** Starts what connects to a server. Throws the error of an argument if the core refuses a certificate or key. @internal */
export function startable<T>({ server }: ErrorContext, start: () => T): T {
  try {
    return start();
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    if (code === 'InvalidArg') throw argumentError('ERR_INVALID_ARG_VALUE', message);
    if (code === 'Cancelled') {
      throw new LockConnectionError(`cannot connect to ${server}: ${message}`);
    }
    const report = 'this is a defect of holdfast, please report it';
    throw new LockError('ERR_INTERNAL', `${message}: ${report}`, undefined, { cause: error });
  }
}

function channelOptions(
  client: string,
  where: Target,
  checked: CheckedOptions,
  logins: AskedLogins,
): ChannelOptions {
  const tls = where.tls ? checked.tls : undefined;
  const sentinelOptions = ({ host, port, ...login }: Sentinel) => {
    return { host, port, ...logins.optionsOf(login, tls) };
  };
  // A quorum logs in to its servers alone.
  const login = where.quorum === null ? logins.optionsOf(loginOf(where, checked), tls) : {};
  const options = {
    client,
    prefix: checked.prefix,
    ...(where.cluster === null ? {} : { cluster: [...where.cluster] }),
    ...(where.sentinels === null ? {} : { sentinels: where.sentinels.map(sentinelOptions) }),
    ...(where.quorum === null ? {} : { quorum: quorumOptions(where.quorum, checked, logins) }),
    ...optional('master', where.master),
    ...optional('host', where.host),
    port: where.port,
    ...optional('path', where.path),
    ...optional('memory', where.memory),
    ...(where.tls ? { tls: knownTls(checked.tls) } : {}),
    ...login,
    db: where.db,
    clientName: checked.clientName,
    connectTimeout: checked.connectTimeout,
    commandTimeout: checked.commandTimeout,
    lingerMax: checked.lingerMax,
    ...pollingOptions(checked.besideOldCode),
    ...(checked.replicas === undefined
      ? {}
      : { replicas: checked.replicas === 'majority' ? REPLICAS_MAJORITY : checked.replicas }),
  };
  return logins.any ? { ...options, askLogin: logins.ask } : options;
}

/** The login for a server: what the options have goes before what its URL has. */
function loginOf(server: Target, options: Given<ConnectOptions>): Login {
  const { credentials, username, password } = options;
  if (credentials !== undefined) return { ...NO_LOGIN, credentials };
  if (username === undefined && password === undefined) return server;
  return {
    username: username ?? server.username,
    password: password ?? server.password,
    credentials: null,
  };
}

function pollingOptions(beside: Given<BesideOldCode> | undefined): Pick<ChannelOptions, 'polling'> {
  if (beside === undefined) return {};
  const { retryDelay, retryJitter = retryDelay / 2 } = beside;
  return { polling: { least: retryDelay - retryJitter, most: retryDelay + retryJitter } };
}

function quorumOptions(servers: readonly Target[], checked: CheckedOptions, logins: AskedLogins) {
  const { serverTimeout, longestLease = checked.ttl } = checked;
  return {
    servers: servers.map((server) => ({
      label: server.label,
      ...optional('host', server.host),
      port: server.port,
      ...optional('path', server.path),
      ...logins.optionsOf(loginOf(server, checked), server.tls ? checked.tls : undefined),
      db: server.db,
      tls: server.tls,
    })),
    serverTimeout,
    longestLease,
  };
}

function optional<K extends string>(key: K, value: string | null): { [P in K]?: string } {
  return value === null ? {} : ({ [key]: value } as { [P in K]?: string });
}
