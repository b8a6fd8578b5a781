/** Mistakes in `js/adapters/bullmq`. */

export default {
  tests: ['bullmq/one-at-a-time'],
  mistakes: [
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'if (await turn.removeFinished(idle)) continue;',
      becomes: '',
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'if (before + preceding.length >= limit) return SOON_MS;',
      becomes: '',
      tests: ['bullmq/turns'],
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'if (!isBusy) await turn.leave().catch(() => {});',
      becomes: '',
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'if (delay !== SOON_MS && (await turn.isFirst())) await turn.wake();',
      becomes: '',
      tests: ['bullmq/turns'],
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'void wakeWhenFree(locks, keyed, turn);',
      becomes: '',
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'AbortSignal.any([cancelled, lost])',
      becomes: 'cancelled',
    },
    {
      file: 'js/adapters/bullmq/one-at-a-time.ts',
      was: 'cancelled === undefined ? lost :',
      becomes: 'cancelled !== undefined ? lost :',
    },
    {
      file: 'js/adapters/bullmq/orders.ts',
      was: "redis.call('ZADD', known, forgotten, job)",
      becomes: "redis.call('ZREM', known, job)",
      tests: ['bullmq/turns'],
    },
    {
      file: 'js/adapters/bullmq/orders.ts',
      was: "redis.call('ZRANGE', order, limit - 1, limit - 1)",
      becomes: "redis.call('ZRANGE', order, 0, 0)",
      tests: ['bullmq/turns'],
    },
    {
      file: 'js/adapters/bullmq/orders.ts',
      was: '? Number(id) : timestamp',
      becomes: '? timestamp : timestamp',
    },
  ],
};
