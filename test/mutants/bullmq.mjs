/** Mistakes in `js/bullmq`. */

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
      was: 'if (cancelled === undefined) return lost;',
      becomes: 'if (cancelled !== undefined) return lost;',
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
    {
      file: 'js/adapters/bullmq/lookout.ts',
      was: ' && !watched.isNew',
      becomes: '',
      tests: ['bullmq/lookout'],
    },
    {
      file: 'js/adapters/bullmq/lookout.ts',
      was: 'watched.rests = RESTS;',
      becomes: 'watched.rests = RESTS - RESTS;',
      tests: ['bullmq/lookout'],
    },
    {
      file: 'js/adapters/bullmq/orders.ts',
      was: "if redis.call('EXISTS', order) == 0 then redis.call('ZREM', keys, key) end",
      becomes: '',
      tests: ['bullmq/lookout'],
    },
    {
      file: 'js/adapters/bullmq/orders.ts',
      was: 'if not planned or isWaiting and tonumber(planned) > look then',
      becomes: 'if isWaiting and (not planned or tonumber(planned) > look) then',
      tests: ['bullmq/lookout'],
    },
    {
      file: 'js/adapters/bullmq/options.ts',
      was: 'renew: true, linger: 0',
      becomes: 'linger: 0',
    },
    {
      file: 'js/adapters/bullmq/names.ts',
      was: 'RESERVED.test(name) ? `${name}%` : name',
      becomes: 'name',
      tests: ['bullmq/names'],
    },
    {
      file: 'js/adapters/bullmq/may-block.ts',
      was: 'setImmediate(() => lease.end());',
      becomes: 'lease.end();',
      tests: ['bullmq/may-block'],
    },
    {
      file: 'js/adapters/bullmq/may-block.ts',
      was: '!known.has(queue) || age > ttl / LATE_PART',
      becomes: '!known.has(queue)',
      tests: ['bullmq/may-block'],
    },
    {
      file: 'js/adapters/bullmq/may-block.ts',
      was: '!known.has(queue) || age > ttl / LATE_PART',
      becomes: 'true',
      tests: ['bullmq/may-block'],
    },
    {
      file: 'js/adapters/bullmq/may-block.ts',
      was: 'if (await lease.renew()) return;',
      becomes: 'return;',
      tests: ['bullmq/may-block'],
    },
  ],
};
