/** The options of TLS, and their checks. */

import { checkBoolean, checkObject, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';

/**
 * Options of TLS, named as those of Node's `tls.connect`. Certificates and keys are PEM.
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
  readonly ca?: Pem | readonly Pem[] | undefined;
  /**
   * The client's certificate, for a server that requires one, followed by its intermediate certificates.
   *
   * @default undefined
   */
  readonly cert?: Pem | undefined;
  /**
   * The private key of `cert`, not encrypted: RSA, P-256, P-384 or Ed25519.
   *
   * @default undefined
   */
  readonly key?: Pem | undefined;
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

const TLS_OPTIONS = ['ca', 'cert', 'key', 'rejectUnauthorized', 'servername'];

/** Checks types alone: the core reads the certificates and keys. @internal */
export function checkTls(tls: unknown, what: string): void {
  const given = checkObject<TlsOptions>(tls, TLS_OPTIONS, what);
  const { ca, cert, key, servername, rejectUnauthorized } = given;
  for (const each of Array.isArray(ca) ? ca : [ca]) checkPem(each, `${what}.ca`);
  checkPem(cert, `${what}.cert`);
  checkPem(key, `${what}.key`);
  if (servername !== undefined) checkText(servername, `${what}.servername`);
  if (rejectUnauthorized !== undefined) {
    checkBoolean(rejectUnauthorized, `${what}.rejectUnauthorized`);
  }
}

/** Never shows the value. */
function checkPem(value: unknown, what: string): void {
  if (value === undefined || typeof value === 'string' || value instanceof Uint8Array) return;
  const message = `${what} must be PEM, as a string or a Buffer, got a value of type ${typeof value}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}
