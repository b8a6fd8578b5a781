/** Mistakes in `js/native`. */

const CALLS = 'js/native/calls.ts';
const CHANNEL = 'js/native/channel.ts';
const HOLDS = 'js/native/handles.ts';
const OPERATIONS = 'js/native/operations.ts';
const RECORDS = 'js/native/records.ts';

export default {
  tests: ['native/channel'],
  mistakes: [
    // The process ends by a TypeError in a timer, once such a lock is released and collected.
    {
      file: HOLDS,
      was: 'if (this.#weak.size > 0) this.#weak.delete(place);',
      becomes: '',
      tests: ['native/handles'],
    },
    { file: HOLDS, was: '    this.#free.push(place);\n', becomes: '', tests: ['native/handles'] },
    { file: HOLDS, was: '    this.#weak.clear();\n', becomes: '', tests: ['native/handles'] },
    {
      file: HOLDS,
      was: '    this.#abandoned += abandoned.length;\n',
      becomes: '',
      tests: ['native/handles'],
    },
    {
      file: HOLDS,
      was: 'if (!this.#has(handle)) return false;',
      becomes: '',
      tests: ['native/handles'],
    },
    {
      file: HOLDS,
      was: 'const YOUNG_MS = 1_000;',
      becomes: 'const YOUNG_MS = 0;',
      tests: ['native/handles'],
    },
    { file: CHANNEL, was: '    this.loseAll(CLOSED_LOSS);\n', becomes: '' },
    {
      file: CHANNEL,
      was: 'this.#closing === undefined ? this.#earlyLosses.get(handle.lease) : CLOSED_LOSS',
      becomes: 'this.#earlyLosses.get(handle.lease)',
    },
    {
      file: CHANNEL,
      was: 'if (early !== undefined) this.#lose(handle, early);',
      becomes: '',
    },
    {
      file: CHANNEL,
      was: 'if (this.#earlyLosses.size === 0) setImmediate(() => this.#earlyLosses.clear());',
      becomes: '',
    },
    {
      file: CHANNEL,
      was: 'soon(() => callListeners(listeners));',
      becomes: 'callListeners(listeners);',
    },
    { file: CHANNEL, was: 'this.#earlyNotices.splice(0)', becomes: 'this.#earlyNotices' },
    {
      file: OPERATIONS,
      was: ' && this.#generations[entry] === generation',
      becomes: '',
    },
    {
      file: OPERATIONS,
      was: 'this.#end === 0 && this.#drains < DRAINS_PER_TURN',
      becomes: 'this.#end === 0',
    },
    { file: CALLS, was: '      throw error;\n', becomes: '' },
    { file: RECORDS, was: '    this.#label = undefined;\n', becomes: '', tests: ['native/batch'] },
    {
      file: RECORDS,
      was: 'numbers[at] !== OpKind.Cancel',
      becomes: 'numbers[at] !== -1',
      tests: ['native/batch'],
    },
    {
      file: RECORDS,
      was: 'return granted ? { code, a, b, text: null } : INTERNAL;',
      becomes: 'return INTERNAL;',
      tests: ['native/batch'],
    },
    {
      file: RECORDS,
      was: 'code === OutcomeCode.Acquired || code === OutcomeCode.AcquiredAs;',
      becomes: 'code === OutcomeCode.Acquired;',
      tests: ['native/batch'],
    },
    {
      file: RECORDS,
      was: 'b === LEASE_ENDLESS ? undefined : b',
      becomes: 'b',
      tests: ['native/batch'],
    },
  ],
};
