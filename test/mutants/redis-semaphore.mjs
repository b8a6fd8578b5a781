/** Mistakes in `js/adapters/redis-semaphore`. */

export default {
  tests: ['redis-semaphore/failures'],
  mistakes: [
    {
      file: 'js/adapters/redis-semaphore/taking.ts',
      was: '    if (!renew) await lock.stopRenewing();\n',
      becomes: '',
      tests: ['redis-semaphore/again'],
    },
    {
      file: 'js/base/abort.ts',
      was: 'Promise.race([work, aborted]).finally(forget)',
      becomes: 'Promise.race([work, aborted])',
    },
    {
      file: 'js/adapters/redis-semaphore/shared-hold.ts',
      was: '      for (const other of others) other.released();\n',
      becomes: '',
      tests: ['redis-semaphore/applications'],
    },
    {
      file: 'js/adapters/redis-semaphore/shared-hold.ts',
      was: 'if (this.isRefreshed || !(this.#lock',
      becomes: 'if (!(this.#lock',
      tests: ['redis-semaphore/applications'],
    },
    {
      file: 'js/adapters/redis-semaphore/shared-hold.ts',
      was: '    this.#isPassable = false;\n    this.#forget();\n',
      becomes: '    this.#forget();\n',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: 'passes >= PASSES_MAX || ',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: '    this.#holding -= 1;\n',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: ' || this.#hasOvertaken',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: ' && lock.age <= ttl * PASSES_WITHIN',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/taking.ts',
      was: '      if (name.token !== undefined) return false;\n',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/taking.ts',
      was: "      if (turn === 'passed') connection.checkOpen(open);\n",
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/shared-hold.ts',
      was: '    for (const namesake of namesakes) namesake.#free();\n',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/taking.ts',
      was: 'const renew = terms.renew || shared.isRefreshed;',
      becomes: 'const { renew } = terms;',
      tests: ['redis-semaphore/applications'],
    },
    {
      file: 'js/adapters/redis-semaphore/taking.ts',
      was: '        if (!this.#isSemaphore()) await shorten(place, options.lockTimeout);\n',
      becomes: '',
      tests: ['redis-semaphore/applications'],
    },
    {
      file: 'js/adapters/redis-semaphore/refresher.ts',
      was: '    if (this.#isRefreshing) return;\n',
      becomes: '',
      tests: ['redis-semaphore/suite'],
    },
    {
      file: 'js/adapters/redis-semaphore/possession.ts',
      was: '    this.#isRefreshed = false;\n',
      becomes: '',
      tests: ['redis-semaphore/behaviour'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: '      if (known.isUsed) return undefined;\n',
      becomes: '      return undefined;\n',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/permits.ts',
      was: '    if (this.#all.size >= this.#sweptAt) this.#sweep(permits);\n',
      becomes: '',
      tests: ['redis-semaphore/permits'],
    },
    {
      file: 'js/adapters/redis-semaphore/options.ts',
      was: 'refreshDefault = Math.round(lockTimeout * 0.8)',
      becomes: 'refreshDefault = 0',
    },
    {
      file: 'js/adapters/redis-semaphore/shared-hold.ts',
      was: '(alive ?? this).#lock.release()',
      becomes: 'this.#lock.release()',
    },
    {
      file: 'js/adapters/redis-semaphore/lock.ts',
      was: "suffix !== '' || this.getIdentifier",
      becomes: 'this.getIdentifier',
    },
    {
      file: 'js/adapters/redis-semaphore/options.ts',
      was: '  acquireTimeout: 10_000,',
      becomes: '  acquireTimeout: 1_000,',
    },
  ],
};
