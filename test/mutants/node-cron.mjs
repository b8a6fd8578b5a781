/** Mistakes in `js/node-cron`. */

export default {
  tests: ['node-cron'],
  mistakes: [
    {
      file: 'js/node-cron/coordinator.ts',
      was: ') !== null;',
      becomes: ') !== undefined;',
    },
    {
      file: 'js/node-cron/coordinator.ts',
      was: 'Math.max(keep, ttlMs)',
      becomes: 'ttlMs',
    },
    {
      file: 'js/node-cron/coordinator.ts',
      was: ', leaveToExpire: true',
      becomes: '',
    },
  ],
};
