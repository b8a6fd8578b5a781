/** The options of the page for operators. */

import type { IncomingMessage } from 'node:http';
import { checkObject, checkText, checkWhole, type Given } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import type { Duration } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';

/**
 * A request to the page. Express's own requests are of this kind; those of Fastify have it as `request.raw`.
 *
 * @example
 * ```ts
 * import type { LockUiRequest } from 'holdfast/ui'
 *
 * const isAdmin = ({ headers }: LockUiRequest) => headers['x-role'] === 'admin'
 * ```
 */
export interface LockUiRequest extends IncomingMessage {
  /** The URL as the client sent it, where a router has cut the beginning off `url`. */
  readonly originalUrl?: string;
}

/**
 * One server of a quorum, for the option `servers` of `lockUi`.
 *
 * @example
 * ```ts
 * import type { LockUiServer } from 'holdfast/ui'
 *
 * const servers: LockUiServer[] = [{ server: 'redis-1', locks }]
 * ```
 */
export interface LockUiServer {
  /** The name of the server on the page. */
  readonly server: string;
  /** A manager that is connected to this server alone. */
  readonly locks: Pick<LockManager, 'query'>;
}

/**
 * Options of `lockUi`.
 *
 * @example
 * ```ts
 * import type { LockUiOptions } from 'holdfast/ui'
 *
 * const options: LockUiOptions = { locks, title: 'Locks of the shop', allowRelease: true }
 * ```
 */
export interface LockUiOptions {
  /** The manager whose server and prefix are shown. */
  readonly locks: LockManager;
  /**
   * Where `locks` is the manager of a quorum: a manager of its own for each server, with the same prefix. The page shows who
   * has the votes of a majority, and what each server says; it releases nothing.
   * @default []
   */
  readonly servers?: readonly LockUiServer[];
  /**
   * Where the page is mounted, if the router leaves that in `request.url`: Fastify does, Express does not.
   * @default ''
   */
  readonly path?: string;
  /**
   * The heading of the page.
   * @default 'Locks'
   */
  readonly title?: string;
  /**
   * Whether locks may be taken away from their holders; a function decides for each request. It is asked when a page
   * is opened and again for each release.
   * @default false
   */
  readonly allowRelease?: boolean | ((request: LockUiRequest) => boolean | Promise<boolean>);
  /**
   * The pause between two looks at all locks, in whole ms, from 100 to 3 600 000. It is longer while a look takes long, so that
   * looking takes a fifth of the time at most. For an hour after the last page was closed it is five times as long, for the
   * history; then nothing is looked at until a page is opened.
   * @default 1000
   */
  readonly interval?: Duration;
}

/**
 * Options of `fetchLockUi`: those of `lockUi`, but `allowRelease` gets the `Request`, and routers leave the place where the
 * page is mounted in its URL, so `path` names it.
 *
 * @example
 * ```ts
 * import type { LockUiFetchOptions } from 'holdfast/ui'
 *
 * const allowRelease = ({ headers }: Request) => headers.get('x-role') === 'admin'
 * const options: LockUiFetchOptions = { locks, path: '/admin/locks', allowRelease }
 * ```
 */
export interface LockUiFetchOptions extends Omit<LockUiOptions, 'allowRelease'> {
  /**
   * Whether locks may be taken away from their holders; a function decides for each request. It is asked when a page
   * is opened and again for each release.
   * @default false
   */
  readonly allowRelease?: boolean | ((request: Request) => boolean | Promise<boolean>);
}

/** @internal */
export type UiSettings<O extends LockUiFetchOptions | LockUiOptions = LockUiOptions> = Required<
  Given<O>
>;

const KNOWN = ['allowRelease', 'interval', 'locks', 'path', 'servers', 'title'];
const TIMES: ReadonlySet<string> = new Set(['interval']);
const INTERVAL_MS_MIN = 100;
const INTERVAL_MS_MAX = 3_600_000;

/** Checks the options, and fills in the defaults. @internal */
export function uiSettingsOf<O extends LockUiFetchOptions | LockUiOptions>(
  options: O,
  caller: string,
): UiSettings<O> {
  const settings = {
    path: '',
    title: 'Locks',
    allowRelease: false,
    interval: 1_000,
    servers: [],
    ...checkObject<LockUiOptions>(options, KNOWN, caller, TIMES),
  };
  checkText(settings.path, '"path"');
  checkText(settings.title, '"title"');
  checkWhole(settings.interval, '"interval"', INTERVAL_MS_MIN, INTERVAL_MS_MAX);
  if (!['boolean', 'function'].includes(typeof settings.allowRelease)) {
    throw argumentError('ERR_INVALID_ARG_TYPE', '"allowRelease" must be a boolean or a function');
  }
  if (typeof settings.locks?.query !== 'function') {
    const message = `${caller} needs the option "locks", what connect() of holdfast returned`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  checkServers(settings.servers);
  return { ...settings, path: settings.path.replace(/\/+$/, '') } as UiSettings<O>;
}

function checkServers(servers: unknown): void {
  const fits = (each: Partial<LockUiServer> | null | undefined): boolean =>
    typeof each?.server === 'string' && typeof each.locks?.query === 'function';
  if (Array.isArray(servers) && servers.every(fits)) return;
  const message =
    '"servers" must be a list of { server, locks }: a name and a manager for each server of the quorum';
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}
