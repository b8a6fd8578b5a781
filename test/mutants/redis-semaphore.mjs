/** Mistakes in `js/redis-semaphore`. */

export default {
  tests: ['redis-semaphore/failures'],
  mistakes: [
    {
      file: 'js/redis-semaphore/lock.ts',
      was: "      if (reason instanceof LockLostError && reason.reason === 'closed') return;\n",
      becomes: '',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '      await held.release().catch(() => {});\n',
      becomes: '',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '    if (!this.#options.renew) await held.stopRenewing();\n',
      becomes: '',
      tests: ['redis-semaphore/again'],
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: 'leaveToExpire: !this.#options.renew,',
      becomes: 'leaveToExpire: false,',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: 'Promise.race([work, aborted]).finally(forget)',
      becomes: 'Promise.race([work, aborted])',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '    return acquired;\n  }\n\n  async #acquireNow',
      becomes:
        '    return signal ? untilAborted(acquired, signal) : acquired;\n  }\n\n  async #acquireNow',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: 'Promise.allSettled([before, acquired])',
      becomes: 'acquired',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: 'Math.ceil(wait - spent)',
      becomes: 'Math.ceil(wait)',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '!this.#isRefreshed || this.#held !== held',
      becomes: '!this.#isRefreshed',
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '  async stopRefresh(): Promise<void> {\n    this.#isRefreshed = false;\n',
      becomes: '  async stopRefresh(): Promise<void> {\n',
      tests: ['redis-semaphore/behaviour'],
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: '    this.#external = false;\n    await held?.release();',
      becomes: '    await held?.release();',
      tests: ['redis-semaphore/again'],
    },
    {
      file: 'js/redis-semaphore/lock.ts',
      was: 'timeout`, { cause });',
      becomes: 'timeout`);',
    },
    {
      file: 'js/redis-semaphore/options.ts',
      was: 'refreshInterval = lockTimeout * 0.8',
      becomes: 'refreshInterval = 0',
    },
    {
      file: 'js/redis-semaphore/options.ts',
      was: '  acquireTimeout: 10_000,',
      becomes: '  acquireTimeout: 1_000,',
    },
  ],
};
