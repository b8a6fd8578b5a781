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
      was: 'slotAt(time - waited, slot)',
      becomes: 'slotAt(time, slot)',
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
  ],
};
