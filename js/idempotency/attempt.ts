/** Handles a request with an Idempotency-Key, as draft-ietf-httpapi-idempotency-key-header-07 describes. */

import { createHash } from 'node:crypto';
import { checkText } from '../base/checks.js';
import { LockTimeoutError, StaleFenceError } from '../base/errors.js';
import type { Problem } from '../base/http.js';
import type { Lock } from '../lock/lock.js';
import type { IdempotentRequest, Settings } from './options.js';
import type { IdempotencyRecord } from './store.js';

/**
 * The property `request.idempotency` of a handler's request.
 *
 * @example
 * ```ts
 * import type { Idempotency } from 'holdfast/idempotency'
 *
 * async function pay({ idempotency }: { idempotency: Idempotency }): Promise<void> {
 *   // … checks that have no effects
 *   await idempotency.effects()
 *   // … the payment, with idempotency.key for the bank
 * }
 * ```
 */
export interface Idempotency {
  /** The key that the client chose. */
  readonly key: string;
  /** Whether an earlier attempt may have had effects, and gave no answer. Only with the option `recover`. */
  readonly interrupted: boolean;
  /** The fence of the lock of the key, for resources that check fences. */
  readonly fence: number;
  /** Aborted if the lock is lost while the handler runs. */
  readonly signal: AbortSignal;
  /**
   * With the option `marksEffects`, call this before the first effect: after a crash from here on, the request is not
   * run again.
   *
   * @throws StaleFenceError if another attempt has begun because this process was paused for too long. The handler must
   *   then have no effects.
   */
  effects(): Promise<void>;
}

/** An answer as it is kept. @internal */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | number | string[]>>;
  readonly body: Buffer;
}

/** The decision about a request. @internal */
export type Verdict =
  | { readonly kind: 'pass' }
  | {
      readonly kind: 'refuse';
      readonly problem: Problem;
      readonly headers?: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'replay'; readonly answer: Answer }
  | { readonly kind: 'run'; readonly attempt: Attempt };

/** Headers of a connection, of a moment, or of a session, which no repeated answer has. */
const NOT_KEPT = new Set(
  'connection content-length date keep-alive set-cookie transfer-encoding'.split(' '),
);

/** Decides what becomes of a request. @internal */
export async function judge(settings: Settings, request: IdempotentRequest): Promise<Verdict> {
  const { methods, required, scope, store } = settings;
  if (!methods.includes(request.method ?? '')) return { kind: 'pass' };
  const header = request.headers['idempotency-key'];
  if (header === undefined) return required ? refusal('missing') : { kind: 'pass' };
  const key = keyOf(header);
  if (key === undefined) return refusal('malformed');
  const fingerprint = fingerprintOf(request);
  const owner = scope(request);
  checkText(owner, 'what "scope" returns');
  const id = createHash('sha256')
    .update(JSON.stringify([owner, key]))
    .digest('hex');
  // Ahead of the lock: answers that are known are repeated to any number of callers at once.
  const known = await store.read(id);
  if (known?.state === 'done' || (known && known.fingerprint !== fingerprint)) {
    return repeat(known, fingerprint);
  }
  const lock = await lockOf(settings, id);
  if (lock === undefined) {
    const since = await store.read(id);
    return since?.state === 'done' ? repeat(since, fingerprint) : refusal('outstanding');
  }
  let verdict: Verdict | undefined;
  try {
    verdict = await begin(settings, { id, key, fingerprint, lock });
    return verdict;
  } finally {
    // The core repeats a release that fails.
    if (verdict?.kind !== 'run') await lock.release().catch(() => {});
  }
}

async function begin(
  settings: Settings,
  { id, key, fingerprint, lock }: Candidate,
): Promise<Verdict> {
  const { marksEffects, recover, store, ttl } = settings;
  // Read under the lock, as it is replaced only under the lock.
  const before = recover ? await store.read(id) : undefined;
  const found = await store.begin(id, {
    fingerprint,
    state: marksEffects ? 'started' : 'effects',
    fence: lock.fence,
    ttl,
    again: recover,
  });
  if (found !== undefined) return repeat(found, fingerprint);
  const interrupted = before?.state === 'effects';
  return { kind: 'run', attempt: new Attempt(settings, { id, key, lock, interrupted }) };
}

interface Candidate {
  readonly id: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly lock: Lock;
}

/** The lock of a key; undefined if another request has it for longer than this one may wait. */
async function lockOf({ locks, wait }: Settings, id: string): Promise<Lock | undefined> {
  const name = `idempotency:${id}`;
  if (wait === 0) return (await locks.tryAcquire(name)) ?? undefined;
  try {
    return await locks.acquire(name, { wait });
  } catch (error) {
    if (error instanceof LockTimeoutError) return undefined;
    throw error;
  }
}

/** A request that is handled, under the lock of its key. @internal */
export class Attempt implements Idempotency {
  readonly key: string;
  readonly interrupted: boolean;
  readonly #id: string;
  readonly #lock: Lock;
  readonly #settings: Settings;
  #marked: boolean;

  constructor(
    settings: Settings,
    { id, key, lock, interrupted }: { id: string; key: string; lock: Lock; interrupted: boolean },
  ) {
    this.key = key;
    this.interrupted = interrupted;
    this.#id = id;
    this.#lock = lock;
    this.#settings = settings;
    this.#marked = !settings.marksEffects;
  }

  get fence(): number {
    return this.#lock.fence;
  }

  get signal(): AbortSignal {
    return this.#lock.signal;
  }

  async effects(): Promise<void> {
    if (this.#marked) return;
    const { store, ttl } = this.#settings;
    const { name, fence } = this.#lock;
    if (!(await store.update(this.#id, fence, 'effects', ttl))) {
      const message = `another attempt of the request "${this.key}" has begun, since this one has lost its lock: it must have no effects`;
      throw new StaleFenceError(message, name, { fence });
    }
    this.#marked = true;
  }

  /** Keeps the answer, before it is sent, and releases the lock. A failure only makes the request unknown. */
  async finish(answer: Answer): Promise<void> {
    const { store, ttl } = this.#settings;
    // A failure ahead of all effects may be tried again.
    const forget = !this.#marked && answer.status >= 500;
    try {
      const state = forget ? undefined : 'done';
      await store.update(this.#id, this.fence, state, ttl, forget ? undefined : toText(answer));
    } catch (error) {
      const advice = 'the request was answered; a repeat of it will be answered 409';
      process.emitWarning(`the answer to "${this.key}" could not be kept: ${error}; ${advice}`, {
        code: 'WARN_IDEMPOTENCY_STORE',
      });
    }
    await this.abandon();
  }

  /** Releases the lock. What the handler did stays unknown, unless its answer is kept. */
  async abandon(): Promise<void> {
    // The core repeats a release that fails.
    await this.#lock.release().catch(() => {});
  }
}

/** The answer to a request whose record stays unchanged. */
function repeat(found: IdempotencyRecord, fingerprint: string): Verdict {
  if (found.fingerprint !== fingerprint) return refusal('reused');
  if (found.state === 'done') return { kind: 'replay', answer: fromText(found.response ?? '') };
  return refusal(found.state === 'effects' ? 'interrupted' : 'outstanding');
}

const PROBLEMS = {
  missing: {
    status: 400,
    title: 'Idempotency-Key is missing',
    detail: 'this operation needs the header Idempotency-Key: choose a key for what is to be done',
  },
  malformed: {
    status: 400,
    title: 'Idempotency-Key is malformed',
    detail:
      'the header Idempotency-Key must be a string in double quotes, of 1 to 255 characters of ASCII',
  },
  outstanding: {
    status: 409,
    title: 'A request is outstanding for this Idempotency-Key',
    detail: 'a request with this key is being processed: repeat this one later',
  },
  interrupted: {
    status: 409,
    title: 'The outcome of the request for this Idempotency-Key is unknown',
    detail:
      'an earlier request with this key ended without an answer, and may have had effects: find out what was done',
  },
  reused: {
    status: 422,
    title: 'Idempotency-Key is already used',
    detail: 'this key belongs to a request with another method, URL or body: choose another key',
  },
} as const;

function refusal(what: keyof typeof PROBLEMS): Verdict {
  const headers = what === 'outstanding' ? { 'Retry-After': '1' } : {};
  return { kind: 'refuse', problem: PROBLEMS[what], headers };
}

/** The key in a header: a string of RFC 8941, or, as many clients send it, without its quotes. */
function keyOf(header: string | string[]): string | undefined {
  if (typeof header !== 'string') return undefined;
  const quoted = /^"((?:[ !#-[\]-~]|\\["\\]){1,255})"$/.exec(header)?.[1];
  if (quoted !== undefined) return quoted.replaceAll(/\\(.)/g, '$1');
  return /^[!#-~]{1,255}$/.test(header) ? header : undefined;
}

function fingerprintOf({ method, url, originalUrl, headers, body }: IdempotentRequest): string {
  const has = Number(headers['content-length'] ?? 0) > 0 || 'transfer-encoding' in headers;
  if (body === undefined && has) {
    throw new Error(
      'the body of the request is not known: put the middleware for idempotency behind the one that parses bodies',
    );
  }
  const bytes = Buffer.isBuffer(body) ? body : (JSON.stringify(body, sorted) ?? '');
  const hash = createHash('sha256').update(`${method} ${originalUrl ?? url}\n`);
  return hash.update(bytes).digest('hex');
}

/** For `JSON.stringify`: makes a text that does not depend on the order of properties. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function toText({ status, headers, body }: Answer): string {
  const kept = Object.entries(headers).filter(([name]) => !NOT_KEPT.has(name.toLowerCase()));
  return JSON.stringify({
    status,
    headers: Object.fromEntries(kept),
    body: body.toString('base64'),
  });
}

function fromText(text: string): Answer {
  const { status, headers, body } = JSON.parse(text);
  const replayed = { ...headers, 'idempotency-replayed': 'true' };
  return { status, headers: replayed, body: Buffer.from(body, 'base64') };
}
