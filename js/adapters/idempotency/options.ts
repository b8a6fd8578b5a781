/** The options of all adapters. */

import type { IncomingHttpHeaders } from 'node:http';
import {
  checkBoolean,
  checkObject,
  checkWhole,
  checkWholeNumber,
  type Given,
  show,
} from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import type { Duration } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';
import type { IdempotencyStore } from './store.js';

/**
 * The properties of a request of Express or Fastify that its idempotency depends on. One of the Fetch API is read into them.
 *
 * @example
 * ```ts
 * import type { IdempotentRequest } from 'holdfast/idempotency'
 *
 * const scope = ({ headers }: IdempotentRequest) => String(headers['x-customer'])
 * ```
 */
export interface IdempotentRequest {
  /** The method. */
  readonly method?: string | undefined;
  /** The URL, without the host. */
  readonly url?: string | undefined;
  /** In Express, the URL before a router took its part. */
  readonly originalUrl?: string | undefined;
  /** The headers, with names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** The body, parsed or not. */
  readonly body?: unknown;
  /** The bytes of the body where the framework keeps them, as Nest does on request. They count in place of `body`. */
  readonly rawBody?: unknown;
}

/**
 * Options of `expressIdempotency`, `fastifyIdempotency` and `fetchIdempotency`.
 *
 * @example
 * ```ts
 * import { type IdempotencyOptions, memoryStore } from 'holdfast/idempotency'
 *
 * const options: IdempotencyOptions = { locks, store: memoryStore(), wait: 5_000 }
 * ```
 */
export interface IdempotencyOptions {
  /** The lock manager: the lock `idempotency:…` of a key is held while its request runs, until its answer is stored. */
  readonly locks: LockManager;
  /** Where answers are kept. */
  readonly store: IdempotencyStore;
  /**
   * How long a request waits for another with its key, in ms, before it is answered 409.
   * @default 0
   */
  readonly wait?: Duration;
  /**
   * How long answers are kept, in ms, from 1000 on. A request without an answer is remembered for a day at least.
   * @default 86_400_000, a day
   */
  readonly ttl?: Duration;
  /**
   * How long the lock of a request is held, in ms, after its client has gone ahead of the answer: its handler may still
   * be at work. 0 to a day.
   * @default 10_000
   */
  readonly grace?: Duration;
  /**
   * The largest body of an answer that is stored, in bytes, up to 256 MiB. A repeat of a request with a larger answer is
   * answered 409.
   * @default 1_048_576, 1 MiB
   */
  readonly maxResponseSize?: number;
  /**
   * The methods that may have a key, in upper or lower case; requests with other methods are passed on.
   * @default ['POST', 'PATCH']
   */
  readonly methods?: readonly string[];
  /**
   * Whether a request without a key is answered 400. Otherwise it is handled as without this middleware.
   * @default false
   */
  readonly required?: boolean;
  /**
   * Whether handlers call `request.idempotency.effects()` before their first effect. A request that crashed before that
   * call is then run again. Otherwise a request counts as having had effects from its start.
   * @default false
   */
  readonly marksEffects?: boolean;
  /**
   * Whether a request is run again after a crash when it may have had effects. Its handler must then find out what was
   * done: `request.idempotency.interrupted` is true. Otherwise the request is answered 409, since its outcome is
   * unknown.
   * @default false
   */
  readonly recover?: boolean;
  /**
   * Names the caller of a request: two callers may use the same key, and neither gets the other's answer. A function that
   * returns the id of the user or the account, or `'public'` if all callers may get each other's answers. It gets the
   * request of the framework, with what a login has added. It must return the same for a repeat, so no token that is
   * refreshed. A request for which it returns no text fails with a TypeError.
   * @default `'public'` for a request without credentials, the header of one with Basic authentication; others fail
   */
  readonly scope?: 'public' | ScopeOf;
}

/** Written as a method, so that it may take the framework's own type of request. */
type ScopeOf = { of(request: IdempotentRequest): string }['of'];

/** @internal */
export type Settings = Required<Given<Omit<IdempotencyOptions, 'scope'>>> & {
  readonly scope: ScopeOf;
};

/** @internal */
export const DAY_MS = 86_400_000;
const DEFAULTS = {
  wait: 0,
  ttl: DAY_MS,
  grace: 10_000,
  maxResponseSize: 1_048_576,
  methods: ['POST', 'PATCH'],
  required: false,
  marksEffects: false,
  recover: false,
  scope: undefined as IdempotencyOptions['scope'],
};
const TIMES: ReadonlySet<string> = new Set(['grace', 'ttl', 'wait']);
const KNOWN = ['locks', 'store', ...Object.keys(DEFAULTS)];

/** Checks the options, and fills in the defaults. @internal */
export function settingsOf(options: IdempotencyOptions, caller: string): Settings {
  const settings = {
    ...DEFAULTS,
    ...checkObject<IdempotencyOptions>(options, KNOWN, caller, TIMES),
  };
  checkWhole(settings.wait, '"wait"', 0, DAY_MS);
  checkWhole(settings.grace, '"grace"', 0, DAY_MS);
  checkWholeNumber(settings.maxResponseSize, '"maxResponseSize"', 0, 268_435_456);
  checkWhole(settings.ttl, '"ttl"', 1_000, Number.MAX_SAFE_INTEGER);
  for (const name of ['required', 'marksEffects', 'recover'] as const) {
    checkBoolean(settings[name], `"${name}"`);
  }
  checkMethods(settings.methods);
  if (typeof settings.locks?.acquire !== 'function') {
    throw missing(caller, 'locks', 'what connect() of holdfast returned');
  }
  if (typeof settings.store?.replace !== 'function') {
    throw missing(caller, 'store', 'such as redisStore(client)');
  }
  const methods = settings.methods.map((method) => method.toUpperCase());
  return { ...settings, methods, scope: scopeOf(settings.scope) };
}

function scopeOf(given: IdempotencyOptions['scope']): ScopeOf {
  if (given === undefined) return byCredentials;
  if (given === 'public') return () => 'public';
  if (typeof given === 'function') return given;
  const message = `"scope" must be a function from a request to the name of its caller, or 'public', got ${show(given)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** Headers by which services tell callers apart. Those of sessions and tokens differ between a request and its repeat. */
const CREDENTIALS = [
  'authorization',
  'cookie',
  'x-api-key',
  'api-key',
  'x-auth-token',
  'x-access-token',
];

/** The scope of a caller whom nothing identifies, or a password does: any other the service must name. */
function byCredentials({ headers }: IdempotentRequest): string {
  const found = CREDENTIALS.filter((name) => headers[name] !== undefined);
  if (found.length === 0) return 'public';
  const { authorization = '' } = headers;
  if (found.length === 1 && /^basic /i.test(authorization)) return authorization;
  const message = `the caller of a request with the header ${found.join(' and ')} is not known: name the caller by the option "scope", as in scope: (request) => request.user.id, or choose scope: 'public' if all callers may get each other's answers`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

function checkMethods(methods: unknown): void {
  const all = Array.isArray(methods) && methods.length > 0 ? methods : [undefined];
  if (all.every((method) => typeof method === 'string')) return;
  const message = `"methods" must be a list of methods such as 'POST', got ${show(methods)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

function missing(caller: string, option: string, advice: string): Error {
  return argumentError('ERR_INVALID_ARG_TYPE', `${caller} needs the option "${option}", ${advice}`);
}
