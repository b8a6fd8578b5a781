/** Mistakes in `js/manager`. */

const FILE = 'js/manager/manager.ts';
const QUERY = 'js/manager/query.ts';
const STATS = 'js/manager/stats.ts';

export default {
  tests: ['manager/manager'],
  mistakes: [
    // What is granted in the moment of an abort is renewed for ever by nobody.
    {
      file: FILE,
      was: '    if (isGrant(outcome)) {\n      await',
      becomes: '    if (false) {\n      await',
    },
    {
      file: FILE,
      was: '      await set.release();\n      throw signal.reason;',
      becomes: '      throw signal.reason;',
    },
    { file: FILE, was: 'if (!signal.aborted) return outcome;', becomes: 'return outcome;' },
    {
      file: FILE,
      was: ': this.#unlessAborted(acquisition, signal));\n',
      becomes: ': this.#untilAborted(acquisition, signal));\n',
    },
    { file: FILE, was: '    forget();\n', becomes: '', tests: ['base/abort'] },
    { file: FILE, was: 'const names = [...given];', becomes: 'const names = given;' },
    {
      file: FILE,
      was: 'return wait === WAIT_NEVER ? null : undefined;',
      becomes: 'return null;',
    },
    { file: FILE, was: '    this.#warned.add(subject);\n', becomes: '' },
    {
      file: FILE,
      was: "if (this.emit('warning', warning)) return;",
      becomes: "this.emit('warning', warning);",
    },
    {
      file: FILE,
      was: "{ type: 'HoldfastWarning', code }",
      becomes: "{ type: 'HoldfastWarning' }",
    },
    {
      file: FILE,
      was: 'this.#closing ??= this.#close();',
      becomes: 'this.#closing = this.#close();',
    },
    { file: FILE, was: ', error, holder: lock }', becomes: ', error }' },
    {
      file: FILE,
      was: 'if (outcome.code === OutcomeCode.Lost) return false;\n    if (outcome.code === OutcomeCode.Done) return true;',
      becomes:
        'if (outcome.code === OutcomeCode.Lost || outcome.code === OutcomeCode.Done) return true;',
    },
    {
      file: FILE,
      was: 'heldFor: (tokenId) => channel.heldFor(tokenId)',
      becomes: 'heldFor: () => undefined',
    },
    { file: STATS, was: 'oldestHold: channel.oldestHold', becomes: 'oldestHold: 0' },
    { file: STATS, was: 'slot === last', becomes: 'slot > last' },
    { file: STATS, was: '2 ** slot / 1000', becomes: '2 ** (slot + 1) / 1000' },
    { file: QUERY, was: "} while (cursor !== '');", becomes: "} while (cursor === '?');" },
    {
      file: QUERY,
      was: '.sort((a, b) => byName(a, b) || (a.fence ?? 0) - (b.fence ?? 0))',
      becomes: '',
      tests: ['manager/query'],
    },
  ],
};
