/** The options of TLS, and their checks. */

import { checkBoolean, checkObject, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';

/**
 * Options of TLS, named as those of Node's `tls.connect`. Certificates and keys are PEM, or functions that give it for each
 * new connection, so that a certificate may be replaced while the process runs.
 *
 * @example
 * ```ts
 * import { readFileSync } from 'node:fs'
 *
 * const locks = await connect('rediss://redis.example.com:6380', {
 *   password: process.env.REDIS_PASSWORD,
 *   tls: { ca: readFileSync('/etc/redis/ca.pem') },
 * })
 * ```
 */
export interface TlsOptions {
  /**
   * The certificates of the CAs that are trusted, in place of the system's roots. A text may hold
   * several. `SSL_CERT_FILE` and `SSL_CERT_DIR` in the environment name other roots.
   *
   * @default the system's roots
   */
  readonly ca?: Pem | readonly Pem[] | (() => GivenPems | Promise<GivenPems>) | undefined;
  /**
   * The client's certificate, for a server that requires one, followed by its intermediate certificates.
   *
   * @default undefined
   */
  readonly cert?: Pem | (() => Pem | Promise<Pem>) | undefined;
  /**
   * The private key of `cert`, not encrypted: RSA, P-256, P-384 or Ed25519.
   *
   * @default undefined
   */
  readonly key?: Pem | (() => Pem | Promise<Pem>) | undefined;
  /**
   * The name that the server's certificate must have, and that is sent to the server (SNI).
   *
   * @default the host of the URL
   */
  readonly servername?: string | undefined;
  /**
   * Whether the server's certificate is checked. If it is not, another machine on the network can pose as the server,
   * read the password and grant locks: for tests only.
   *
   * @default true
   */
  readonly rejectUnauthorized?: boolean | undefined;
}

/**
 * A text in PEM form, or a Buffer that holds one.
 *
 * @example
 * ```ts
 * import { readFileSync } from 'node:fs'
 *
 * const ca: string | Uint8Array = readFileSync('/etc/redis/ca.pem')
 * const password = process.env.REDIS_PASSWORD
 * const locks = await connect('rediss://redis.example.com:6380', { password, tls: { ca } })
 * ```
 */
export type Pem = string | Uint8Array;

/** One certificate, or several. */
type GivenPems = Pem | readonly Pem[];

const TLS_OPTIONS = ['ca', 'cert', 'key', 'rejectUnauthorized', 'servername'];

/** Checks types alone: the core reads the certificates and keys. @internal */
export function checkTls(tls: unknown, what: string): void {
  const given = checkObject<TlsOptions>(tls, TLS_OPTIONS, what);
  const { ca, cert, key, servername, rejectUnauthorized } = given;
  const isFunction = (part: unknown) => typeof part === 'function';
  for (const each of Array.isArray(ca) ? ca : [ca]) {
    if (!isFunction(ca)) checkPem(each, `${what}.ca`);
  }
  if (!isFunction(cert)) checkPem(cert, `${what}.cert`);
  if (!isFunction(key)) checkPem(key, `${what}.key`);
  if (servername !== undefined) checkText(servername, `${what}.servername`);
  if (rejectUnauthorized !== undefined) {
    checkBoolean(rejectUnauthorized, `${what}.rejectUnauthorized`);
  }
}

/** The options of TLS for the core. @internal */
export interface TlsTexts {
  ca?: string;
  cert?: string;
  key?: string;
  servername?: string;
  rejectUnauthorized: boolean;
}

/** Whether functions give a part of it. @internal */
export function asksForTls(tls: TlsOptions | null): boolean {
  return [tls?.ca, tls?.cert, tls?.key].some((part) => typeof part === 'function');
}

/** The options of TLS for the core, without what functions give. @internal */
export function knownTls(given: TlsOptions): TlsTexts {
  const { ca, cert, key, servername, rejectUnauthorized = true } = given;
  // A certificate is nothing without its key.
  const hasPair = typeof cert !== 'function' && typeof key !== 'function';
  return {
    ...(ca === undefined || typeof ca === 'function' ? {} : { ca: joined(ca) }),
    ...(hasPair && cert !== undefined ? { cert: textOf(cert) } : {}),
    ...(hasPair && key !== undefined ? { key: textOf(key) } : {}),
    ...(servername === undefined ? {} : { servername }),
    rejectUnauthorized,
  };
}

/** All options of TLS for the core. `called` calls a function of the caller. @internal */
export async function givenTls(
  tls: TlsOptions,
  called: <T>(name: string, give: () => T | Promise<T>) => Promise<T>,
): Promise<TlsTexts> {
  const part = async <T>(name: string, given: T | (() => T | Promise<T>) | undefined) => {
    if (typeof given !== 'function') return given;
    const value = await called(`tls.${name}`, given as () => T | Promise<T>);
    for (const each of [value].flat()) checkPem(each ?? null, `what tls.${name} gives`);
    return value;
  };
  // The certificate and its key first, together: they are replaced at the same time.
  const [cert, key] = await Promise.all([part('cert', tls.cert), part('key', tls.key)]);
  const ca = await part('ca', tls.ca);
  return knownTls({ ...tls, cert, key, ca } as TlsOptions);
}

function joined(ca: GivenPems): string {
  return [ca]
    .flat()
    .map((each) => textOf(each as Pem))
    .join('\n');
}

function textOf(pem: Pem): string {
  return typeof pem === 'string' ? pem : Buffer.from(pem).toString();
}

/** Never shows the value. */
function checkPem(value: unknown, what: string): void {
  if (value === undefined || typeof value === 'string' || value instanceof Uint8Array) return;
  const message = `${what} must be PEM, as a string or a Buffer, got a value of type ${typeof value}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}
