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
      was: "if (loss?.reason === 'released') throw",
      becomes: 'if (loss === undefined && json === null) throw',
    },
    {
      file: 'js/once/run.ts',
      was: '      lock.assertHeld();\n',
      becomes: '',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/mark.ts',
      was: 'const held = await this.#write(value, true);',
      becomes: 'const held = await this.#write(value, false);',
    },
    {
      file: 'js/once/mark.ts',
      was: 'held = await this.#write(value, wasMarked);',
      becomes: 'held = await this.#write(value, true);',
    },
    {
      file: 'js/once/mark.ts',
      was: 'if (once.retry && error instanceof LockLostError) this.#value = undefined;\n        else if',
      becomes: 'if',
    },
    {
      file: 'js/once/mark.ts',
      was: "if (isForeign(value)) return { is: 'taken' };",
      becomes: '',
    },
    {
      file: 'js/once/mark.ts',
      was: "if (last > planned.time) return { is: 'done' };",
      becomes: '',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/mark.ts',
      was: 'return now === undefined || time <= now + AHEAD_MS_MAX;',
      becomes: 'return true;',
      tests: ['once/cron'],
    },
    {
      file: 'js/base/names.ts',
      was: ".replaceAll('%', written)",
      becomes: '',
      tests: ['base/names'],
    },
    {
      file: 'js/once/planned-times.ts',
      was: 'return names.reverse();',
      becomes: 'return names;',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/planned-times.ts',
      was: '=== MISSED_MAX) break;',
      becomes: '=== MISSED_MAX) return [];',
      tests: ['once/cron'],
    },
    {
      file: 'js/once/planned-times.ts',
      was: 'Math.max(given ?? usualKeep(KEPT_TIMES * gap), gap);',
      becomes: '(given ?? usualKeep(KEPT_TIMES * gap));',
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
      file: 'js/once/planned-times.ts',
      was: "timeZone ?? 'UTC'",
      becomes: "'UTC'",
      tests: ['once/cron'],
    },
    {
      file: 'js/once/planned-times.ts',
      was: 'usualKeep(KEPT_TIMES * gap)',
      becomes: 'usualKeep(gap)',
      tests: ['once/cron'],
    },
  ],
};
