/** Mistakes in `js/adapters/redlock`. */

const INDEX = 'js/adapters/redlock/redlock.ts';

export default {
  tests: ['redlock/failures'],
  mistakes: [
    {
      file: INDEX,
      was: '    await Promise.allSettled([set, ...locks].map((each) => each.release()));\n',
      becomes: '    await set.release();\n',
    },
    {
      file: INDEX,
      was: '    await Promise.allSettled([set, ...locks].map((each) => each.release()));\n',
      becomes: '    await Promise.allSettled(locks.map((each) => each.release()));\n',
    },
    {
      file: INDEX,
      was: '    if (failure !== undefined) throw failure;\n    const controller',
      becomes: '    const controller',
    },
    {
      file: INDEX,
      was: 'await release().catch(() => {});',
      becomes: 'await release();',
    },
    {
      file: INDEX,
      was: 'this.#ended ? held?.release() : this.release(lock)',
      becomes: 'this.release(lock)',
    },
    {
      file: INDEX,
      was: 'if (!isUnreachable(known.cause)) failure ??=',
      becomes: 'failure ??=',
    },
    {
      file: INDEX,
      was: 'if (!isUnreachable(known.cause)) failure ??=',
      becomes: 'if (isUnreachable(known.cause)) failure ??=',
    },
    {
      file: INDEX,
      was: '{ ...given, [RENEWED]: true }',
      becomes: '{ [RENEWED]: true }',
    },
    {
      file: INDEX,
      was: 'held !== undefined && isReleased(held)',
      becomes: 'held !== undefined',
    },
    {
      file: INDEX,
      was: 'held !== undefined && isReleased(held)',
      becomes: 'false',
    },
    {
      file: 'js/adapters/redlock/connection.ts',
      was: 'if (this.#areTooFew(ended)) return',
      becomes: 'if (ended > this.#clients.length) return',
    },
    {
      file: 'js/adapters/redlock/connection.ts',
      was: 'ended * 2 >= this.#clients.length',
      becomes: 'ended > 0',
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end",
      becomes: "redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: '  if (stats.votesFor.size < stats.quorumSize) {\n',
      becomes: '  if (stats.votesFor.size === 0) {\n',
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: '  if (stats.votesFor.size < stats.quorumSize && failure !== undefined) throw failure;\n',
      becomes: '',
    },
  ],
};
