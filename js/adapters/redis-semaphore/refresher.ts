/**
 * Refreshes a lock that no manager renews, at an interval in ms.
 *
 * @internal
 */
export class Refresher {
  readonly #interval: number;
  readonly #refresh: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #isRefreshing = false;

  constructor(interval: number, refresh: () => Promise<void>) {
    this.#interval = interval;
    this.#refresh = refresh;
  }

  start(): void {
    this.stop();
    this.#timer = setInterval(() => void this.once(), this.#interval).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Refreshes now, unless the refresh before has not ended: a subclass may take longer than the interval. */
  async once(): Promise<void> {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    try {
      await this.#refresh();
    } finally {
      this.#isRefreshing = false;
    }
  }
}
