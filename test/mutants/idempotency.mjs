/** Mistakes in `js/adapters/idempotency`. */

export default {
  tests: ['idempotency/failures'],
  mistakes: [
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: '    if (!runs) await attempt.release();',
      becomes: '',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'return write().catch(write);',
      becomes: 'return write();',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'await this.#write(JSON.stringify(entry), before).catch(() => {});',
      becomes: '',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'this.#orTakenBack(write, entry, text)',
      becomes: 'write()',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'this.#orTakenBack(() => this.#change(entry), entry, before)',
      becomes: 'this.#change(entry)',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'stays so.\n      if (!this.interrupted) await',
      becomes: 'stays so.\n      await',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: ' || fence > this.fence) return found;',
      becomes: ') return found;',
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: '    if (error instanceof LockTimeoutError) return undefined;\n    throw error;',
      becomes: '    return undefined;',
      tests: ['idempotency/corners'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'if (answer.status < 500 || this.#marked) {',
      becomes: 'if (answer.status <= 500 || this.#marked) {',
      tests: ['idempotency/corners'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: "to?.state === 'done' ? 0 : DAY_MS",
      becomes: '0',
      tests: ['idempotency/behaviour'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: '      void this.release();\n',
      becomes: '',
      tests: ['idempotency/clients'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: '    clearTimeout(this.#grace);\n',
      becomes: '',
      tests: ['idempotency/clients'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'JSON.stringify([caller, key])',
      becomes: 'JSON.stringify([key])',
      tests: ['idempotency/behaviour'],
    },
    {
      file: 'js/adapters/idempotency/response.ts',
      was: "    socket?.off('close', gone);\n",
      becomes: '',
      tests: ['idempotency/clients'],
    },
    {
      file: 'js/adapters/idempotency/answer.ts',
      was: 'keep-alive|set-cookie|trailer',
      becomes: 'keep-alive|trailer',
      tests: ['idempotency/passing'],
    },
    {
      file: 'js/adapters/idempotency/request.ts',
      was: 'originalUrl ?? url',
      becomes: 'url ?? originalUrl',
      tests: ['idempotency/passing'],
    },
    {
      file: 'js/adapters/idempotency/options.ts',
      was: '  grace: 10_000,',
      becomes: '  grace: 0,',
      tests: ['idempotency/corners'],
    },
    {
      file: 'js/adapters/idempotency/options.ts',
      was: "methods: ['POST', 'PATCH'],",
      becomes: "methods: ['POST'],",
      tests: ['idempotency/corners'],
    },
    {
      file: 'js/adapters/idempotency/attempt.ts',
      was: 'linger: 0, renew: true',
      becomes: 'renew: true',
      tests: ['idempotency/corners'],
    },
    {
      file: 'js/adapters/idempotency/response.ts',
      was: 'copy.ended || response.writableEnded',
      becomes: 'response.writableEnded',
      tests: ['idempotency/compression'],
    },
    {
      file: 'js/adapters/idempotency/store.ts',
      was: "'PX', ARGV[3])",
      becomes: "'EX', ARGV[3])",
      tests: ['idempotency/behaviour'],
    },
  ],
};
