/** Mistakes in `js/adapters/redlock4`. */

const REDLOCK = 'js/adapters/redlock4/redlock.ts';

export default {
  tests: ['redlock4/behaviour'],
  mistakes: [
    { file: REDLOCK, was: 'if (!(error instanceof ResourceLockedError)) ', becomes: '' },
    { file: REDLOCK, was: '    lock.expiration = 0;\n', becomes: '' },
    {
      file: REDLOCK,
      was: 'options?.retryCount || this.retryCount',
      becomes: 'this.retryCount',
    },
    { file: REDLOCK, was: 'stats.votesFor.size >= stats.quorumSize', becomes: 'true' },
    {
      file: REDLOCK,
      was: '    if (lock.expiration < Date.now()) {',
      becomes: '    if (lock === null) {',
    },
    { file: REDLOCK, was: '.catch(errorHandler)', becomes: '' },
    { file: REDLOCK, was: '      lock.expiration = extended.expiration;\n', becomes: '' },
    {
      file: 'js/adapters/redlock4/promise.ts',
      was: '      await callback(result);\n',
      becomes: '      callback(result);\n',
    },
    {
      file: REDLOCK,
      was: '      const { attempts } = await this.#redlock().release(inner);',
      becomes: '      const { attempts } = inner;',
    },
  ],
};
