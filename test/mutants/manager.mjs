/** Mistakes in `js/manager`. */

const FILE = 'js/manager/manager.ts';
const QUERY = 'js/lock/query.ts';
const STATS = 'js/manager/stats.ts';

export default {
  tests: ['manager/manager'],
  mistakes: [
    { file: FILE, was: '    this.#warned.add(subject);\n', becomes: '' },
    {
      file: FILE,
      was: "callListeners(() => this.emit('warning', warning));",
      becomes: "this.emit('warning', warning);",
      tests: ['weather/web-locks', 'weather/idempotency'],
    },
    {
      file: FILE,
      was: "callListeners(() => this.emit('close'));",
      becomes: "this.emit('close');",
      tests: ['weather/web-locks'],
    },
    {
      file: FILE,
      was: "if (this.listenerCount('warning') === 0) {",
      becomes: 'if (true) {',
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
      was: 'heldFor: (tokenId) => channel.heldFor(tokenId)',
      becomes: 'heldFor: () => undefined',
    },
    { file: STATS, was: 'oldestHold: channel.oldestHold', becomes: 'oldestHold: 0' },
    { file: STATS, was: 'slot === last', becomes: 'slot > last' },
    { file: STATS, was: '2 ** slot / 1000', becomes: '2 ** (slot + 1) / 1000' },
    { file: QUERY, was: "} while (cursor !== '');", becomes: "} while (cursor === '?');" },
    {
      file: QUERY,
      was: '.sort((a, b) => byName(a, b) || Number(a.fence) - Number(b.fence))',
      becomes: '',
      tests: ['manager/query'],
    },
  ],
};
