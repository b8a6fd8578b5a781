import type { SharedHandle } from '../../lock/lock.js';
import { newIdentifier, type Share, tokenFor } from './options.js';
import type { SharedHold } from './shared-hold.js';

/**
 * The name of an object as the holder of its lock. Until it is told to somebody, each lock that is acquired may keep the
 * token that its manager has given it.
 *
 * @internal
 */
export class Name {
  readonly #share: Share;
  #text: string | undefined;

  /** `text`: the name that others may know, or will look for. */
  constructor(share: Share, text: string | undefined) {
    this.#share = share;
    this.#text = text;
  }

  /** The value in Redis, once others may know the name. */
  get token(): string | undefined {
    return this.#text === undefined ? undefined : tokenFor(this.#text, this.#share);
  }

  set(text: string): void {
    this.#text = text;
  }

  /** Tells the name to a caller: that of `hold`, or a new one, if it has none yet. */
  tell(key: string, hold: SharedHold | undefined): string {
    this.#text ??= tokenOf(hold) ?? newIdentifier();
    this.show(key, hold);
    return this.#text;
  }

  /** Tells the name as the value in Redis that stands for it. */
  tokenFor(key: string, hold: SharedHold | undefined): string {
    return tokenFor(this.tell(key, hold), this.#share);
  }

  /** Lets the objects of this process find `hold` by the name, if it was told. */
  show(key: string, hold: SharedHold | undefined): void {
    if (this.token !== undefined) hold?.tell(key, this.token);
  }
}

function tokenOf(hold: SharedHold | undefined): string | undefined {
  const held = hold?.lock as Partial<SharedHandle> | undefined;
  return held?.toJSON?.().token;
}
