/**
 * The steps of callers on the store within the process, which gets no requests: the operations of their managers.
 */

/** The internal class is reached by path, past the package's exports. */
interface Channel {
  run(operation: unknown): Promise<unknown>;
  begin(operation: unknown): { outcome: Promise<unknown> };
}

const { NativeChannel } = require('../../../dist/internals.js') as {
  NativeChannel: { prototype: Channel };
};

type Watcher = (channel: object, outcome: Promise<unknown>) => void;

const watchers = new Set<Watcher>();

const { run, begin } = NativeChannel.prototype;
NativeChannel.prototype.run = function (this: Channel, operation) {
  const outcome = run.call(this, operation);
  for (const watcher of watchers) watcher(this, outcome);
  return outcome;
};
NativeChannel.prototype.begin = function (this: Channel, operation) {
  const pending = begin.call(this, operation);
  for (const watcher of watchers) watcher(this, pending.outcome);
  return pending;
};

/** Counts the operations of the managers that are opened from now on. */
export class Operations {
  readonly #others: ReadonlySet<object>;
  readonly #watcher: Watcher;
  #isCounting = false;
  #at: { operation: number; act: (outcome: Promise<unknown>) => void } | undefined;
  count = 0;

  private constructor(others: ReadonlySet<object>) {
    this.#others = others;
    this.#watcher = (channel, outcome) => {
      if (!this.#isCounting || this.#others.has(channel)) return;
      this.count += 1;
      if (this.count === this.#at?.operation) this.#at.act(outcome);
    };
    watchers.add(this.#watcher);
  }

  /** Calls `open` for all that does not count, and answers what it made with the operations to come. */
  static async besides<T>(open: () => Promise<T>): Promise<{ opened: T; operations: Operations }> {
    const others = new Set<object>();
    const see: Watcher = (channel) => others.add(channel);
    watchers.add(see);
    const opened = await open();
    watchers.delete(see);
    return { opened, operations: new Operations(others) };
  }

  /** Begins to count, and calls `act` when this operation has begun. */
  begin(operation = 0, act: (outcome: Promise<unknown>) => void = () => {}): void {
    this.#at = { operation, act };
    this.#isCounting = true;
  }

  end(): void {
    watchers.delete(this.#watcher);
  }
}
