/** Mistakes in `js/acquire`. */

const SEVERAL = 'js/acquire/several.ts';
const TAKER = 'js/acquire/taker.ts';

export default {
  tests: ['manager/manager'],
  mistakes: [
    // Nobody would release a lock that is granted in the moment of an abort, and its lease would be renewed for ever.
    {
      file: TAKER,
      was: '    if (isGrant(outcome)) {\n      const',
      becomes: '    if (false) {\n      const',
    },
    {
      file: SEVERAL,
      was: '    await set.release();\n    throw signal.reason;',
      becomes: '    throw signal.reason;',
    },
    { file: TAKER, was: 'if (!signal.aborted) return outcome;', becomes: 'return outcome;' },
    {
      file: TAKER,
      was: ': this.#unlessAborted(acquisition, signal));\n',
      becomes: ': this.untilAborted(acquisition, signal));\n',
    },
    { file: TAKER, was: '    forget();\n', becomes: '', tests: ['base/abort'] },
    { file: SEVERAL, was: 'const names = [...given];', becomes: 'const names = given;' },
    {
      file: SEVERAL,
      was: 'return wait === WAIT_NEVER ? null : undefined;',
      becomes: 'return null;',
    },
    {
      file: TAKER,
      was: 'if (outcome.code === OutcomeCode.Lost) return false;\n    if (outcome.code === OutcomeCode.Done) return true;',
      becomes:
        'if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Done) return true;',
    },
    {
      file: SEVERAL,
      tests: ['lock/states'],
      was: '        await releaseTaken();\n        return null;',
      becomes: '        return null;',
    },
    {
      file: SEVERAL,
      was: '    await releaseTaken();\n    throw error;',
      becomes: '    throw error;',
    },
    {
      file: SEVERAL,
      was: 'for (const lock of taken.values()) assertStillHeld(lock);',
      becomes: '',
    },
  ],
};
