/** The options of `connect`, and their checks. */

import type { LockDefaults } from '../acquire/check-options.js';
import {
  checkBoolean,
  checkObject,
  checkText,
  checkWhole,
  checkWholeNumber,
  type Given,
  show,
} from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { defaultLabel, writeLabel } from '../base/label.js';
import type { Duration } from '../base/time.js';
import {
  checkHold,
  checkLinger,
  checkWait,
  LOCK_TIMES,
  TTL_MS_MAX,
  TTL_MS_MIN,
} from '../lock/times.js';
import { type CredentialsSource, checkLoginParts, type LoginText } from './login.js';
import { checkTls, type TlsOptions } from './tls.js';

/**
 * Options of `connect`.
 *
 * @example
 * ```ts
 * const locks = await connect('redis://127.0.0.1:6379', { ttl: 20_000, clientName: 'shop' })
 * ```
 */
export interface ConnectOptions {
  /**
   * The beginning of every lock's key; the lock `item:42` is the key `lock:item:42`. Use `''` to
   * share locks with code that uses the plain name.
   *
   * @default 'lock:'
   */
  readonly prefix?: string | undefined;
  /**
   * The lease of locks that are acquired without a `ttl`, in whole ms from 50 to 9e15.
   *
   * @default 10000
   */
  readonly ttl?: Duration | undefined;
  /**
   * How long `acquire` and `request` wait without a `wait`, in whole ms, or `Infinity`.
   *
   * @default 10000
   */
  readonly wait?: Duration | undefined;
  /**
   * Whether locks that are acquired without `renew` are renewed.
   *
   * @default true
   */
  readonly renew?: boolean | undefined;
  /**
   * The longest hold of locks that are acquired without a `maxHold`, in whole ms, or `Infinity`.
   *
   * @default Infinity
   */
  readonly maxHold?: Duration | undefined;
  /**
   * How long locks that are acquired without a `linger` are kept for the next caller of this manager once they were
   * released, in whole ms up to a third of `ttl`. If the process is killed or frozen meanwhile, others wait for up to `ttl`.
   *
   * @default 0
   */
  readonly linger?: Duration | undefined;
  /**
   * Whether the end of `request`, `runOnce` and an `await using` block waits for the release, unless the call says so itself.
   *
   * @default true
   */
  readonly awaitRelease?: boolean | undefined;
  /**
   * How many locks are kept like that at a time, a whole number from 0. If there are more, the one that was released first
   * is released at the server.
   *
   * @default 10000
   */
  readonly lingerMax?: number | undefined;
  /**
   * The name of this process for people: `query`, the command line and the errors of waiters show it for locks that are
   * acquired without a `label`, up to 80 characters, with the limits of a lock's `label`. `''` for none.
   *
   * @default host name and process id, as in `web-7d9f8b6c5-x2x4z.17`
   */
  readonly label?: string | undefined;
  /**
   * The stall limit of locks that are acquired without a `stallTimeout`, in whole ms, or `Infinity`.
   *
   * @default 30000
   */
  readonly stallTimeout?: Duration | undefined;
  /**
   * How long the server may answer nothing, while it is asked, before the connection is closed, in whole ms from 1 to
   * 600 000. A server that answers slowly is asked for less at once, and keeps its connection. Also how long `close`,
   * `tryAcquire` and an acquire with `wait: 0` wait for a server that cannot be reached.
   *
   * @default 2000
   */
  readonly commandTimeout?: Duration | undefined;
  /**
   * How long one attempt to connect may take, login included, in whole ms from 1 to 600 000. A reconnection starts another
   * attempt beside it after a second, or sooner if the lease of a held lock needs it. With
   * Sentinels `connect` keeps trying for that long: during a failover none of the servers may be the master.
   *
   * @default 5000
   */
  readonly connectTimeout?: Duration | undefined;
  /**
   * How long `connect` tries again while no server can be reached, in whole ms, or `Infinity`: for a service that may start
   * before its server. The last attempt begins as this time ends, and may take `connectTimeout`. A server that refuses the
   * login, or is none of Redis, ends it at once; a password that a function gives is asked for and tried again, as it may
   * change.
   *
   * @default 0
   */
  readonly waitForServer?: Duration | undefined;
  /**
   * How many replicas must have a lock before it counts as acquired: a number from 1 to 1000, or `'majority'`. With
   * `'majority'` these replicas and the primary are more than half of the largest number of servers that this manager
   * has seen at once; at least one replica is needed. A failover to one of these replicas keeps the lock. The option
   * costs a round trip to the replicas. If too few have the lock within a second, it is released, and `acquire` rejects
   * with `LockServerError`. For one server and its replicas; not for a Cluster.
   *
   * @default undefined
   */
  readonly replicas?: number | 'majority' | undefined;
  /**
   * The ACL user, or a function that gives it for each new connection. It overrides the one in the URL. Refused without a
   * password.
   *
   * @default undefined
   */
  readonly username?: LoginText | undefined;
  /**
   * The password, or a function that gives it for each new connection; `''` for an ACL user that needs none. It overrides
   * the one in the URL.
   *
   * @default undefined
   */
  readonly password?: LoginText | undefined;
  /**
   * Gives the user and the password, in place of both: for passwords that are rotated, and tokens that expire. It is asked
   * for each new connection, and before `expiresAt`: then open connections log in again, and keep their locks and waiters.
   * If the function throws, gives something else, or answers nothing within `connectTimeout`, `connect` fails. A
   * reconnection logs in with the last answer then, also if there is no new one after 250 ms, as while the event loop is
   * blocked; it fails if that has expired or the server refuses it. An open connection stays as it is, and asks again a
   * second later.
   *
   * @default undefined
   */
  readonly credentials?: CredentialsSource | undefined;
  /**
   * Only with a quorum: how long one server may take to answer before it counts as failed, in whole ms from 1 to 10
   * 000, and at most a tenth of the `ttl` of the lock. An acquire has up to two such rounds. Choose a multiple of the
   * round trip to the farthest server.
   *
   * @default 100
   */
  readonly serverTimeout?: Duration | undefined;
  /**
   * Only with a quorum: the longest lease (`ttl`) that any client acquires on these servers, in whole ms from 50 to
   * 9e15. A server that restarted may have forgotten locks, so it has no vote for that long and a second more after its
   * start. A longer `ttl` of one acquire or `extend` raises it for all later acquires of this manager, until that is
   * closed; other managers do not know of it. `0` turns this off, which is safe only if every server keeps its data over a
   * restart (`appendonly yes` and `appendfsync always`); the event `warning` names a server that does not.
   *
   * @default the `ttl` of these options
   */
  readonly longestLease?: Duration | undefined;
  /**
   * The options of TLS, only with a URL that begins with `rediss://` or `valkeys://`. With `{}` the server's
   * certificate is checked against the system's roots.
   *
   * @default {}
   */
  readonly tls?: TlsOptions | undefined;
  /**
   * The name of the connection in `CLIENT LIST`: printable ASCII without spaces.
   *
   * @default 'holdfast'
   */
  readonly clientName?: string | undefined;
  /**
   * For the time of a migration, while old code that polls uses the same keys: callers that wait for an exclusive lock
   * poll too, at this interval, and are in no queue. Then a release leaves the lock free for whoever asks next, and old
   * code gets its share. Without this option each holder passes the lock on to the next waiter of holdfast, and old code
   * rarely gets a busy lock. Give it to all instances that use holdfast, and remove it once no old instance runs. Shared
   * locks wait in the queue as always.
   *
   * @default undefined, waiters are in the queue
   */
  readonly besideOldCode?: BesideOldCode | undefined;
}

/**
 * How callers poll beside old code: as that does, so that all have the same chance.
 *
 * @example
 * ```ts
 * const besideOldCode = { retryDelay: 200, retryJitter: 100 }
 * const locks = await connect('redis://127.0.0.1:6379', { prefix: '', besideOldCode })
 * ```
 */
export interface BesideOldCode {
  /**
   * The time between two attempts of a caller, in whole ms from 1 to 600 000: that of the old code.
   */
  readonly retryDelay: Duration;
  /**
   * The largest random deviation from `retryDelay`, in whole ms from 0 to `retryDelay`.
   *
   * @default half of retryDelay
   */
  readonly retryJitter?: Duration | undefined;
}

const TIMEOUT_MS_MAX = 600_000;
const SERVER_TIMEOUT_MS_MAX = 10_000;
const REPLICAS_MAX = 1000;
const LINGERING_MAX = 1_000_000;

/** @internal */
interface Defaults extends LockDefaults {
  readonly commandTimeout: number;
  readonly connectTimeout: number;
  readonly waitForServer: number;
  readonly clientName: string;
  readonly lingerMax: number;
}

const DEFAULTS: Omit<Defaults, 'label'> = {
  prefix: 'lock:',
  ttl: 10_000,
  wait: 10_000,
  renew: true,
  maxHold: Number.POSITIVE_INFINITY,
  stallTimeout: 30_000,
  linger: 0,
  lingerMax: 10_000,
  awaitRelease: true,
  commandTimeout: 2_000,
  connectTimeout: 5_000,
  waitForServer: 0,
  clientName: 'holdfast',
};

const CONNECT_OPTIONS = [
  'awaitRelease',
  'besideOldCode',
  'clientName',
  'commandTimeout',
  'connectTimeout',
  'credentials',
  'label',
  'linger',
  'lingerMax',
  'longestLease',
  'maxHold',
  'serverTimeout',
  'password',
  'prefix',
  'replicas',
  'renew',
  'stallTimeout',
  'tls',
  'ttl',
  'username',
  'wait',
  'waitForServer',
];

const TIMES: ReadonlySet<string> = new Set([
  ...LOCK_TIMES,
  'commandTimeout',
  'connectTimeout',
  'longestLease',
  'serverTimeout',
  'waitForServer',
]);
const POLLING_TIMES: ReadonlySet<string> = new Set(['retryDelay', 'retryJitter']);

/** The options of `connect`, checked, with times in ms. @internal */
export type CheckedOptions = Omit<Given<ConnectOptions>, 'besideOldCode'> &
  Defaults & { readonly besideOldCode?: Given<BesideOldCode> };

/** @internal */
export function checkConnectOptions(options: unknown): CheckedOptions {
  const given = checkObject<ConnectOptions>(options, CONNECT_OPTIONS, 'connect', TIMES);
  const { label = defaultLabel() } = given;
  checkText(label, 'options.label');
  const { besideOldCode, ...rest } = given;
  const polling = besideOldCode === undefined ? {} : { besideOldCode: checkPolling(besideOldCode) };
  const checked = { ...DEFAULTS, ...rest, ...polling, label: writeLabel(label) };
  const { username, password, credentials } = checked;
  checkLoginParts(username, password, credentials, (part) => `options.${part}`);
  if (checked.tls !== undefined) checkTls(checked.tls, 'options.tls');
  checkText(checked.prefix, 'options.prefix');
  checkHold(checked);
  checkWait(checked.wait);
  checkBoolean(checked.awaitRelease, 'options.awaitRelease');
  checkLinger(checked.linger, checked.ttl);
  checkWholeNumber(checked.lingerMax, 'options.lingerMax', 0, LINGERING_MAX);
  checkWhole(checked.commandTimeout, 'options.commandTimeout', 1, TIMEOUT_MS_MAX);
  checkWhole(checked.connectTimeout, 'options.connectTimeout', 1, TIMEOUT_MS_MAX);
  if (checked.waitForServer !== Number.POSITIVE_INFINITY) {
    checkWhole(checked.waitForServer, 'options.waitForServer', 0, Number.MAX_SAFE_INTEGER);
  }
  if (checked.replicas !== undefined && checked.replicas !== 'majority') {
    checkWholeNumber(checked.replicas, 'options.replicas', 1, REPLICAS_MAX);
  }
  if (checked.serverTimeout !== undefined) {
    checkWhole(checked.serverTimeout, 'options.serverTimeout', 1, SERVER_TIMEOUT_MS_MAX);
  }
  if (checked.longestLease !== undefined && checked.longestLease !== 0) {
    checkWhole(checked.longestLease, 'options.longestLease', TTL_MS_MIN, TTL_MS_MAX);
  }
  checkText(checked.clientName, 'options.clientName');
  if (!/^[\x21-\x7e]+$/.test(checked.clientName)) {
    const message = `options.clientName must be printable ASCII without spaces, got ${show(checked.clientName)}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  return checked;
}

function checkPolling(options: unknown): Given<BesideOldCode> {
  const [caller, known] = ['options.besideOldCode', [...POLLING_TIMES]];
  const given = checkObject<BesideOldCode>(options, known, caller, POLLING_TIMES);
  checkWhole(given.retryDelay, 'options.besideOldCode.retryDelay', 1, TIMEOUT_MS_MAX);
  if (given.retryJitter !== undefined) {
    checkWhole(given.retryJitter, 'options.besideOldCode.retryJitter', 0, given.retryDelay);
  }
  return given;
}
