/** Mistakes in `js/adapters/node-cron`. */

export default {
  tests: ['node-cron'],
  mistakes: [
    {
      file: 'js/adapters/node-cron/coordinator.ts',
      was: ') !== null;',
      becomes: ') !== undefined;',
    },
    {
      file: 'js/adapters/node-cron/coordinator.ts',
      was: 'Math.max(keep, ttlMs)',
      becomes: 'ttlMs',
    },
    {
      file: 'js/adapters/node-cron/coordinator.ts',
      was: ', leaveToExpire: true',
      becomes: '',
    },
  ],
};
