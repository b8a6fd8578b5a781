/** Mistakes in `js/lock`. */

const HELD = 'js/lock/held-lock.ts';
const NESTED = 'js/lock/nested-lock.ts';
const SET = 'js/lock/lock-set.ts';

export default {
  tests: ['lock/states'],
  mistakes: [
    { file: SET, was: 'if (signal.aborted) lost();\n        else signal', becomes: 'signal' },
    {
      file: SET,
      was: "if (each.status === 'rejected') throw each.reason;\n    return each.value;",
      becomes: 'return (each as PromiseFulfilledResult<T>).value;',
    },
    {
      file: HELD,
      was: '    this.#flags |= RELEASED | RELEASING;\n    return this.#manager.channel.run(this);',
      becomes: '    return this.#manager.channel.run(this);',
    },
    {
      file: HELD,
      was: '    this.#flags |= EXPORTED;\n    if (',
      becomes: '    if (',
      tests: ['lock/linger'],
    },
    {
      file: HELD,
      was: '    this.#manager.channel.forget(this);\n    if (outcome',
      becomes: '    if (outcome',
    },
    { file: HELD, was: "[LossCode.MaxHold]: 'maxHold'", becomes: "[LossCode.MaxHold]: 'expired'" },
    { file: HELD, was: "[LossCode.Adopted]: 'adopted'", becomes: "[LossCode.Adopted]: 'stolen'" },
    {
      file: HELD,
      was: 'if (quiet && this.#is(RELEASED)) return () => {};',
      becomes: 'if (quiet) return;',
    },
    { file: HELD, was: '    this.#flags |= SHARED;\n', becomes: '' },
    { file: HELD, was: 'others.set(this, count - 1);', becomes: '' },
    { file: NESTED, was: '    this.#released = true;\n', becomes: '' },
  ],
};
