/** Handles a request with an Idempotency-Key, as draft-ietf-httpapi-idempotency-key-header-07 describes. */

import { createHash, randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { noticing } from '../../base/abort.js';
import type { Answer } from '../../base/answer.js';
import { checkText, show } from '../../base/checks.js';
import { argumentError, LockTimeoutError, StaleFenceError } from '../../base/errors.js';
import type { Lock } from '../../lock/lock.js';
import { unkeptWarning } from '../../manager/warnings.js';
import { type Given, type Kept, kept, refusal, replayed } from './answer.js';
import { DAY_MS, type IdempotentRequest, type Settings } from './options.js';
import { fingerprintOf, keyOf } from './request.js';
import { copyAnswer } from './response.js';

/** The record of a request, which is stored as JSON. */
interface Entry {
  /** The attempt that wrote it. */
  readonly attempt: string;
  readonly fingerprint: string;
  /** The fence of the attempt's lock. */
  readonly fence: number;
  /** `started`: its handler had no effects yet; `effects`: it may have had some; `done`: its answer is known. */
  readonly state: 'done' | 'effects' | 'started';
  /** The answer of a request that is `done`. */
  readonly response?: Kept;
}

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
  /** Aborted if the lock is lost while the handler runs, or released `grace` ms after its client has gone. */
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

/**
 * Returns the answer to a request of node:http whose handler is not to run; undefined if it is to run, or if somebody else
 * has answered.
 *
 * @internal
 */
export async function judgeByNode(
  settings: Settings,
  request: IdempotentRequest,
  response: ServerResponse,
): Promise<Answer | undefined> {
  // Registered twice, as for the service and for a route: the handler runs under the first.
  if ('idempotency' in request && request.idempotency instanceof Attempt) return undefined;
  const found = await judge(settings, () => request, request.method);
  if (!(found instanceof Attempt)) return found;
  if (response.writableEnded) {
    await found.withdraw();
    return undefined;
  }
  Object.assign(request, { idempotency: found });
  copyAnswer(response, settings.maxResponseSize, found);
  return undefined;
}

/**
 * Returns the answer to a request whose handler is not to run, or the attempt under which it is to run; undefined for a
 * request without a key, whose handler runs. `read` is called if the method may have a key.
 *
 * @internal
 */
export async function judge(
  settings: Settings,
  read: () => IdempotentRequest | Promise<IdempotentRequest>,
  method = '',
  scope: Settings['scope'] = settings.scope,
): Promise<Answer | Attempt | undefined> {
  const { methods, required } = settings;
  if (!methods.includes(method)) return undefined;
  const request = await read();
  const header = request.headers['idempotency-key'];
  if (header === undefined) return required ? refusal('missing') : undefined;
  const key = keyOf(header);
  if (key === undefined) return refusal('malformed');
  const fingerprint = fingerprintOf(request);
  const id = idOf(scope(request), key);
  const accepted = request.headers['accept-encoding'];
  // Ahead of the lock: answers that are known are repeated to any number of callers at once.
  const known = entryOf(await readFrom(settings, id));
  if (known?.state === 'done' || (known && known.fingerprint !== fingerprint)) {
    return repeat(known, fingerprint, accepted);
  }
  const lock = await lockOf(settings, id);
  if (lock === undefined) {
    const since = entryOf(await readFrom(settings, id));
    return since?.state === 'done' ? repeat(since, fingerprint, accepted) : refusal('outstanding');
  }
  const attempt = new Attempt(settings, { id, key, lock, fingerprint, accepted });
  let runs = false;
  try {
    // Before the lock was granted, another request may have changed it.
    const found = await attempt.begin(known && (await readFrom(settings, id)));
    if (found !== undefined) return repeat(found, fingerprint, accepted);
    runs = true;
  } finally {
    if (!runs) await attempt.release();
  }
  return attempt;
}

/** The id of a caller's key: no two pairs have the same. */
function idOf(caller: unknown, key: string): string {
  checkText(caller, 'what "scope" returns');
  if (caller === '') {
    const message = `what "scope" returns must name a caller, got ""; 'public' is the name for all`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  return createHash('sha256')
    .update(JSON.stringify([caller, key]))
    .digest('hex');
}

interface Candidate {
  readonly id: string;
  readonly key: string;
  readonly lock: Lock;
  readonly fingerprint: string;
  /** The header Accept-Encoding of the request. */
  readonly accepted: unknown;
}

/** The lock of a key; undefined if another request has it for longer than this one may wait. */
async function lockOf({ locks, wait }: Settings, id: string): Promise<Lock | undefined> {
  const name = `idempotency:${id}`;
  // A repeat may come by any process, so no lock stays with its manager. A handler works for as long as it takes.
  const hold = { linger: 0, renew: true, maxHold: Number.POSITIVE_INFINITY };
  if (wait === 0) return (await locks.tryAcquire(name, hold)) ?? undefined;
  try {
    return await locks.acquire(name, { ...hold, wait });
  } catch (error) {
    if (error instanceof LockTimeoutError) return undefined;
    throw error;
  }
}

function entryOf(text: string | undefined): Entry | undefined {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    const message =
      'the record of the request in the store has no JSON: does other code write there?';
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
}

/** The text of a record. Clients of Redis answer `null` where there is none. */
async function readFrom({ store }: Settings, id: string): Promise<string | undefined> {
  const text: unknown = (await store.read(id)) ?? undefined;
  if (text === undefined || typeof text === 'string') return text;
  const message = `"read" of the store must return a text or undefined, got ${show(text)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

/** The answer to a request whose record stays unchanged. */
async function repeat(found: Entry, fingerprint: string, accepted: unknown): Promise<Answer> {
  if (found.fingerprint !== fingerprint) return refusal('reused');
  if (found.response !== undefined) return replayed(found.response, accepted);
  return refusal(found.state === 'effects' ? 'interrupted' : 'outstanding');
}

/** A request that is handled, under the lock of its key. @internal */
export class Attempt implements Idempotency {
  readonly key: string;
  interrupted = false;
  readonly #accepted: unknown;
  readonly #given = new AbortController();
  readonly #id: string;
  readonly #lock: Lock;
  readonly #settings: Settings;
  #entry: Entry;
  #grace: NodeJS.Timeout | undefined;
  #marked: boolean;
  #signal: AbortSignal | undefined;

  constructor(settings: Settings, { id, key, lock, fingerprint, accepted }: Candidate) {
    this.key = key;
    this.#accepted = accepted;
    this.#id = id;
    this.#lock = lock;
    this.#settings = settings;
    this.#marked = !settings.marksEffects;
    const state = this.#marked ? 'effects' : 'started';
    // The id tells this attempt's record from that of another, also when the answer of the store was lost.
    this.#entry = { attempt: randomUUID(), fingerprint, fence: lock.fence, state };
  }

  get fence(): number {
    return this.#lock.fence;
  }

  get signal(): AbortSignal {
    const { signal } = this.#lock;
    this.#signal ??= noticing(
      AbortSignal.any([signal, this.#given.signal]),
      () => void signal.aborted,
    );
    return this.#signal;
  }

  /** Writes the record of this attempt in place of `text`, or returns the record that forbids it. */
  async begin(text: string | undefined): Promise<Entry | undefined> {
    const { recover } = this.#settings;
    const found = entryOf(text);
    const { fingerprint, fence, state } = found ?? this.#entry;
    const open = found === undefined || state === 'started' || (recover && state === 'effects');
    if (!open || fingerprint !== this.#entry.fingerprint || fence > this.fence) return found;
    const interrupted = found?.state === 'effects';
    // An earlier attempt may have done its work: that stays so until there is an answer.
    const entry = interrupted ? { ...this.#entry, state: found.state } : this.#entry;
    const write = () => this.#write(text, JSON.stringify(entry));
    if (!(await this.#orTakenBack(write, entry, text))) {
      return this.begin(await readFrom(this.#settings, this.#id));
    }
    [this.#entry, this.interrupted] = [entry, interrupted];
    return undefined;
  }

  async effects(): Promise<void> {
    if (this.#marked || this.#entry.state === 'done') return;
    const before = JSON.stringify(this.#entry);
    const entry = { ...this.#entry, state: 'effects' } as const;
    if (!(await this.#orTakenBack(() => this.#change(entry), entry, before))) {
      const message = `another attempt of the request "${this.key}" has begun, since this one has lost its lock: it must have no effects`;
      throw new StaleFenceError(message, this.#lock.name, { fence: this.fence });
    }
    this.#marked = true;
  }

  /** Replaces the record of this attempt, or removes it. Returns false if there is no such record any more. */
  async #change(to: Entry | undefined): Promise<boolean> {
    let from: string | undefined = JSON.stringify(this.#entry);
    const text = to && JSON.stringify(to);
    // The record of a request that runs must not end before its handler.
    const least = to?.state === 'done' ? 0 : DAY_MS;
    while (!(await this.#write(from, text, least))) {
      // `effects` may have changed it without getting the answer.
      from = await readFrom(this.#settings, this.#id);
      if (entryOf(from)?.attempt !== this.#entry.attempt) return false;
    }
    if (to !== undefined) this.#entry = to;
    return true;
  }

  /**
   * Calls `write`, which writes `entry`. If the store fails, writes `before` in its place, as the handler must not go on:
   * the store may have written the entry, or may yet do so, since clients of Redis send a command that timed out when
   * they are connected again. They send in order.
   */
  async #orTakenBack(write: () => Promise<boolean>, entry: Entry, before: string | undefined) {
    try {
      return await write();
    } catch (error) {
      await this.#write(JSON.stringify(entry), before).catch(() => {});
      throw error;
    }
  }

  /** Calls the store again if it fails, as when its answer was lost: that changes nothing more. */
  #write(from: string | undefined, to: string | undefined, least = DAY_MS): Promise<boolean> {
    const ttl = Math.max(this.#settings.ttl, least);
    const write = async () => {
      const done: unknown = await this.#settings.store.replace(this.#id, from, to, ttl);
      if (typeof done === 'boolean') return done;
      const message = `"replace" of the store must return true or false, got ${show(done)}`;
      throw argumentError('ERR_INVALID_ARG_TYPE', message);
    };
    return write().catch(write);
  }

  /** Keeps the answer while the lock is held, so that a repeat that waits for the lock finds it. */
  async answered(answer: Given): Promise<void> {
    clearTimeout(this.#grace);
    try {
      await this.#keep(answer);
    } catch (error) {
      this.#settings.locks.warn(unkeptWarning(this.key, this.#lock.name, error));
    } finally {
      await this.release();
    }
  }

  async #keep(answer: Given): Promise<void> {
    if (answer.status < 500 || this.#marked) {
      const response = kept(answer, this.#accepted);
      const done = { ...this.#entry, state: 'done', response } as const;
      if (await this.#change(done)) return;
      throw new Error('its record is gone, or is that of another attempt');
    }
    // A failure ahead of all effects may be tried again, but what an earlier attempt did stays unknown.
    if (!this.interrupted) await this.#change(undefined);
  }

  /** Ends the attempt without a run of its handler, as if there had been no request. */
  async withdraw(): Promise<void> {
    try {
      // An earlier attempt may have done its work: that stays so.
      if (!this.interrupted) await this.#change(undefined);
    } finally {
      await this.release();
    }
  }

  /** The client has gone ahead of the answer: the handler may go on for a time, under the lock. */
  left(): void {
    const { grace } = this.#settings;
    this.#grace = setTimeout(() => {
      const message = `the client of the request "${this.key}" went away ${grace} ms ago ("grace"): its lock was released`;
      this.#given.abort(new Error(message));
      void this.release();
    }, grace).unref();
  }

  /** Releases the lock. The core repeats a release that fails. */
  async release(): Promise<void> {
    await this.#lock.release().catch(() => {});
  }
}
