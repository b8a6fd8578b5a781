import { setTimeout as sleep } from 'node:timers/promises';
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
import { NativeChannel } from '../native/channel.js';
import { type Outcome, OutcomeCode } from '../native/records.js';
import { isDefaultTarget } from './check-target.js';
import type { ConnectOptions } from './options.js';
import { type Prepared, prepare } from './prepare.js';
import type { ConnectTarget } from './target.js';

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
  { context, checked, options, logins }: Prepared,
): Promise<LockManager> {
  let channel: NativeChannel | undefined;
  const outcome = await new Promise<Outcome>((opened) => {
    const ended = () => logins.end();
    channel = startable(context, () => new NativeChannel(options, opened, ended));
  });
  if (outcome.code !== OutcomeCode.Done) {
    logins.end();
    throw advised(toError(outcome, context, 'connect to'), target);
  }
  const warnings = isDefaultTarget(target) ? [defaultTargetWarning(context.server)] : [];
  return LockManager.of(channel as NativeChannel, context, checked, warnings);
}

/** The error of a server that is not up, with what to do if it starts later. */
function advised(error: LockError, target: ConnectTarget | undefined): LockError {
  if (!isUnreachable(error)) return error;
  if (isDefaultTarget(target)) error.message += NO_TARGET;
  if (NOT_UP.test(error.message)) error.message += WAIT_ADVICE;
  return error;
}

const NO_TARGET =
  '; connect got no target, or undefined, and neither HOLDFAST_URL nor REDIS_URL is set';

/** The advice for a service whose server is not up. @internal */
export const WAIT_ADVICE =
  "; if it starts later, connect waits for it with the option waitForServer, as in '30s'";

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
