/** The logins that user functions supply: the core asks for them. */

import { operations } from '../native/operations.js';
import type {
  BasicCredentials,
  Credentials,
  CredentialsSource,
  Login,
  LoginText,
} from './login.js';
import { asksForTls, givenTls, type TlsOptions, type TlsTexts } from './tls.js';

/** The answer to the core's question. */
type Answer = Parameters<typeof operations.bridge.answerLogin>[1];
/** The answer without TLS. */
type LoginAnswer = Omit<Answer, 'tls' | 'offered' | 'failure'>;

/** Numbers of logins are not used again: an answer may come after its manager has ended. */
let lastNumber = 0;

/** The logins of one manager that functions give. @internal */
export class AskedLogins {
  readonly #logins = new Map<number, AskedLogin>();

  /** Whether there are any. */
  get any(): boolean {
    return this.#logins.size > 0;
  }

  /** Whether functions give a user or a password, which may be another one at the next attempt. */
  get changes(): boolean {
    return [...this.#logins.values()].some((login) => login.changes);
  }

  /** The options for the core to log in to one server; `tls`: how it speaks TLS, if it does. */
  optionsOf(
    login: Login,
    tls: TlsOptions | null,
  ): { username?: string; password?: string; login?: number } {
    const { username, password, credentials } = login;
    const isText = typeof username !== 'function' && typeof password !== 'function';
    if (isText && credentials === null && !asksForTls(tls)) {
      return {
        ...(username === null ? {} : { username }),
        ...(password === null ? {} : { password }),
      };
    }
    lastNumber += 1;
    this.#logins.set(lastNumber, new AskedLogin(lastNumber, login, tls));
    return { login: lastNumber };
  }

  /** Answers the core's question for a login. */
  readonly ask = (number: number): void => {
    void this.#logins.get(number)?.answer();
  };

  /** Ends the asking: no connection needs a login any more. */
  end(): void {
    for (const login of this.#logins.values()) login.end();
  }
}

/** One login. */
class AskedLogin {
  readonly #number: number;
  readonly #login: Login;
  readonly #tls: TlsOptions | null;
  readonly #subscription: Subscription | undefined;
  /** The TLS that the core has. */
  #sent: string | undefined;

  constructor(number: number, login: Login, tls: TlsOptions | null) {
    this.#number = number;
    this.#login = login;
    this.#tls = asksForTls(tls) ? tls : null;
    const { credentials } = login;
    if (typeof credentials === 'object' && credentials?.type === 'streaming-credentials-provider') {
      this.#subscription = new Subscription(credentials, (next) => {
        return this.#offer(next);
      });
    }
  }

  /** Whether it is more than TLS. */
  get changes(): boolean {
    const { username, password, credentials } = this.#login;
    return credentials !== null || typeof username === 'function' || typeof password === 'function';
  }

  async answer(): Promise<void> {
    let answer: Answer;
    try {
      const login = await this.#read();
      const tls = await this.#newTls();
      answer = { ...login, ...(tls === undefined ? {} : { tls }), offered: false };
    } catch (error) {
      answer = { failure: messageOf(error), offered: false };
    }
    if (!operations.bridge.answerLogin(this.#number, answer)) this.end();
  }

  end(): void {
    this.#subscription?.end();
  }

  /** Gives the core credentials that it has not asked for. Answers whether it needs any. */
  #offer(next: BasicCredentials): boolean {
    let answer: Answer;
    try {
      answer = { ...answerOf(next, 'credentialsProvider'), offered: true };
    } catch (error) {
      answer = { failure: messageOf(error), offered: true };
    }
    return operations.bridge.answerLogin(this.#number, answer);
  }

  async #read(): Promise<LoginAnswer> {
    const { username, password, credentials } = this.#login;
    if (this.#subscription !== undefined) {
      return answerOf(await this.#subscription.current(), 'credentialsProvider');
    }
    if (typeof credentials === 'function') {
      return answerOf(await called('credentials', credentials), 'credentials');
    }
    if (credentials !== null && 'credentials' in credentials) {
      const provider = () => credentials.credentials();
      return answerOf(await called('credentialsProvider', provider), 'credentialsProvider');
    }
    const [user, secret] = await Promise.all([
      textOf('username', username),
      textOf('password', password),
    ]);
    return {
      ...(user === null ? {} : { username: user }),
      ...(secret === null ? {} : { password: secret }),
    };
  }

  /** The TLS of new connections, if the core has another. */
  async #newTls(): Promise<TlsTexts | undefined> {
    if (this.#tls === null) return undefined;
    const texts = await givenTls(this.#tls, called);
    const sent = JSON.stringify(texts);
    if (sent === this.#sent) return undefined;
    this.#sent = sent;
    return texts;
  }
}

type Streaming = Extract<CredentialsSource, { type: 'streaming-credentials-provider' }>;

/** The subscription to a provider that tells of changes. */
class Subscription {
  readonly #provider: Streaming;
  readonly #changed: (next: BasicCredentials) => boolean;
  #latest: Promise<BasicCredentials> | undefined;
  #end: (() => void) | undefined;
  #ended = false;

  constructor(provider: Streaming, changed: (next: BasicCredentials) => boolean) {
    this.#provider = provider;
    this.#changed = changed;
  }

  /** The credentials now. */
  current(): Promise<BasicCredentials> {
    this.#latest ??= this.#subscribe();
    return this.#latest;
  }

  end(): void {
    this.#ended = true;
    this.#end?.();
    this.#end = undefined;
  }

  async #subscribe(): Promise<BasicCredentials> {
    const onNext = (next: BasicCredentials) => {
      this.#latest = Promise.resolve(next);
      if (!this.#changed(next)) this.end();
    };
    // The stream has ended: the next question begins another.
    const onError = () => {
      this.#latest = undefined;
      this.#end = undefined;
    };
    const provider = () => this.#provider.subscribe({ onNext, onError });
    try {
      const [first, disposable] = await called('credentialsProvider', provider);
      this.#end = () => disposable.dispose();
      if (this.#ended) this.end();
      return first;
    } catch (error) {
      this.#latest = undefined;
      throw error;
    }
  }
}

/** Calls a function of the caller. The error that it throws names the function. */
async function called<T>(name: string, give: () => T | Promise<T>): Promise<T> {
  try {
    return await give();
  } catch (error) {
    throw new Error(`the function ${name} failed: ${messageOf(error)}`);
  }
}

async function textOf(name: string, text: LoginText | null): Promise<string | null> {
  if (typeof text !== 'function') return text;
  return checkedText(await called(name, text), `the function ${name}`);
}

/** Throws unless `value` is a text. Never shows it: it may be a password. */
function checkedText(value: unknown, what: string): string {
  if (typeof value === 'string') return value;
  throw new Error(`${what} must give a string, got a value of type ${typeof value}`);
}

/** The answer for credentials that were given. Throws if they are none. */
function answerOf(given: unknown, name: string): LoginAnswer {
  if (typeof given !== 'object' || given === null) {
    const got = given === null ? 'null' : `a value of type ${typeof given}`;
    throw new Error(`the function ${name} must give { username, password }, got ${got}`);
  }
  const { username, password, expiresAt } = given as Partial<Credentials>;
  const user = username ?? undefined;
  const what = (part: string) => `the ${part} that the function ${name} gives`;
  if (user !== undefined) checkedText(user, what('username'));
  return {
    ...(user === undefined ? {} : { username: user }),
    password: checkedText(password, what('password')),
    ...(expiresAt === undefined || expiresAt === null
      ? {}
      : { validFor: validFor(expiresAt, name) }),
  };
}

/** The time until `expiresAt`, in ms. */
function validFor(expiresAt: unknown, name: string): number {
  const what = `the expiresAt that the function ${name} gives`;
  const at = expiresAt instanceof Date ? expiresAt.getTime() : expiresAt;
  if (typeof at !== 'number' || Number.isNaN(at)) {
    throw new Error(`${what} must be a Date, or ms since 1970, got a value of type ${typeof at}`);
  }
  const left = at - Date.now();
  if (left <= 0) throw new Error(`${what} is in the past; it is a Date, or ms since 1970`);
  return Math.min(left, Number.MAX_SAFE_INTEGER);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : 'it threw what is no Error';
}
