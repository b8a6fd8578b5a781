/** Mistakes in `js/once`. */

export default {
  tests: ['once/once'],
  mistakes: [
    {
      file: 'js/once/run.ts',
      was: '    await lock?.release().catch(() => {});',
      becomes: '',
    },
    {
      file: 'js/once/run.ts',
      was: 'slots.at(time - waited)',
      becomes: 'slots.at(time)',
    },
    {
      file: 'js/once/run.ts',
      was: 'const forget = once.retry ?',
      becomes: 'const forget = !once.retry ?',
    },
    {
      file: 'js/once/run.ts',
      was: 'await this.#write(json ?? DONE, true);',
      becomes: 'await this.#write(json ?? DONE, false);',
    },
    {
      file: 'js/once/run.ts',
      was: 'await this.#write(DONE, false);',
      becomes: 'await this.#write(DONE, true);',
    },
    {
      file: 'js/once/run.ts',
      was: 'if (!this.#isLeft) await this.#held.release().catch(() => {});',
      becomes: 'await this.#held.release().catch(() => {});',
      argued: 'a lock that is left to expire counts as released, so its release does nothing',
    },
    {
      file: 'js/once/run.ts',
      was: 'return missed.reverse();',
      becomes: 'return missed;',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/run.ts',
      was: '    if (missed.push(slot) === MISSED_MAX) break;\n  }\n  return [];',
      becomes: '    if (missed.push(slot) === MISSED_MAX) break;\n  }\n  return missed;',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/cron.ts',
      was: 'const EARLY_PART = 4;',
      becomes: 'const EARLY_PART = 2;',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/cron.ts',
      was: 'this.#before(now + 1)',
      becomes: 'this.#before(now)',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/slots.ts',
      was: "timeZone ?? 'UTC'",
      becomes: "'UTC'",
      tests: ['once/cron'],
    },
    {
      file: 'js/once/slots.ts',
      was: 'usualKeep(KEPT_TIMES * gap)',
      becomes: 'usualKeep(gap)',
      tests: ['once/cron'],
    },
  ],
};
