/** Logins: texts, functions that give them, and providers of node-redis. `asked-logins.ts` asks these. */

import { checkSecret, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';

/**
 * A user and a password, and how long they are valid.
 *
 * @example
 * ```ts
 * import { type Credentials, connect } from 'holdfast'
 *
 * const credentials = (): Credentials => ({ username: 'app', password: process.env.REDIS_PASSWORD ?? '' })
 * await connect('redis://127.0.0.1:6379', { credentials }).catch((error) => console.error(error.message))
 * ```
 */
export interface Credentials {
  /**
   * The ACL user.
   *
   * @default the default user
   */
  readonly username?: string | undefined;
  /** The password, or a token in its place; `''` for an ACL user that needs none. */
  readonly password: string;
  /**
   * When they stop being valid, in ms since 1970 or as a `Date`. After 60 to 80 percent of the time until then the function
   * is asked again, and open connections log in again. Without it an open connection stays logged in.
   *
   * @default undefined
   */
  readonly expiresAt?: number | Date | undefined;
}

/**
 * Gives the credentials of a connection, see the option `credentials` of `connect`: a function, or a `credentialsProvider` of
 * node-redis, such as those of `@redis/entraid`.
 *
 * @example
 * ```ts
 * import { readFile } from 'node:fs/promises'
 * import { type CredentialsSource, connect } from 'holdfast'
 *
 * const secret: CredentialsSource = async () => ({ password: await readFile('/run/secrets/redis', 'utf8') })
 * await connect('redis://127.0.0.1:6379', { credentials: secret }).catch((error) => console.error(error.message))
 * ```
 */
export type CredentialsSource =
  | (() => Credentials | Promise<Credentials>)
  | {
      /** The kind of a provider that is asked. */
      readonly type: 'async-credentials-provider';
      /** Gives the credentials. */
      credentials(): Promise<BasicCredentials>;
    }
  | {
      /** The kind of a provider that tells of changes. */
      readonly type: 'streaming-credentials-provider';
      /** Gives the first credentials, and what ends the subscription. */
      subscribe(listener: {
        /** Takes the next credentials. */
        onNext(credentials: BasicCredentials): void;
        /** The stream has failed, and has ended. */
        onError(error: Error): void;
      }): Promise<
        [
          BasicCredentials,
          {
            /** Ends it. */
            dispose(): void;
          },
        ]
      >;
    };

/**
 * The credentials that a `credentialsProvider` of node-redis gives.
 *
 * @example
 * ```ts
 * import type { BasicCredentials } from 'holdfast'
 *
 * const basic: BasicCredentials = { username: 'app', password: 'secret' }
 * ```
 */
export interface BasicCredentials {
  /**
   * The ACL user.
   *
   * @default the default user
   */
  readonly username?: string | undefined;
  /**
   * The password. Refused if it is left out.
   *
   * @default undefined
   */
  readonly password?: string | undefined;
}

/**
 * A user or a password: a text, or a function that gives it for each new connection.
 *
 * @example
 * ```ts
 * import { readFile } from 'node:fs/promises'
 * import type { LoginText } from 'holdfast'
 *
 * const password: LoginText = async () => (await readFile('/run/secrets/redis', 'utf8')).trim()
 * ```
 */
export type LoginText = string | (() => string | Promise<string>);

/** How to log in to a server. @internal */
export interface Login {
  readonly username: LoginText | null;
  readonly password: LoginText | null;
  /** In place of both. */
  readonly credentials: CredentialsSource | null;
}

/** The login of nobody. @internal */
export const NO_LOGIN: Login = { username: null, password: null, credentials: null };

/** The parts of a login as options have them, checked. @internal */
export function checkLoginParts(
  username: unknown,
  password: unknown,
  credentials: unknown,
  name = (part: string) => part,
): Login {
  if (typeof username !== 'function' && username !== undefined) {
    checkText(username, name('username'));
  }
  if (typeof password !== 'function' && password !== undefined) {
    checkSecret(password, name('password'));
  }
  if (credentials === undefined) {
    return {
      username: (username as LoginText | undefined) ?? null,
      password: (password as LoginText | undefined) ?? null,
      credentials: null,
    };
  }
  const what = name('credentials');
  if (!isSource(credentials)) {
    const message = `${what} must be a function, or a credentialsProvider of node-redis, got a value of type ${typeof credentials}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  if (username !== undefined || password !== undefined) {
    const message = `${what} gives the user and the password: leave ${name('username')} and ${name('password')} out`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  return { ...NO_LOGIN, credentials };
}

/** Whether it gives credentials. @internal */
export function isSource(given: unknown): given is CredentialsSource {
  if (typeof given === 'function') return true;
  if (typeof given !== 'object' || given === null) return false;
  const { type, credentials, subscribe } = given as Readonly<Record<string, unknown>>;
  return (
    (type === 'async-credentials-provider' && typeof credentials === 'function') ||
    (type === 'streaming-credentials-provider' && typeof subscribe === 'function')
  );
}
