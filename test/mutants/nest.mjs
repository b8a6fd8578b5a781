/** Mistakes in `js/adapters/nest`. */

export default {
  tests: ['nest/decorators'],
  mistakes: [
    {
      file: 'js/adapters/nest/leader.ts',
      was: 'await campaigns.get(self)?.end();',
      becomes: '',
      tests: ['nest/leader'],
    },
    {
      file: 'js/adapters/nest/leader.ts',
      was: 'await campaign.begun;',
      becomes: '',
      tests: ['nest/leader'],
    },
    {
      file: 'js/adapters/nest/leader.ts',
      was: '{ onError, ...rest, signal }',
      becomes: '{ ...rest, signal }',
      tests: ['nest/leader'],
    },
    {
      file: 'js/adapters/nest/health.ts',
      was: '    clearTimeout(timer);\n',
      becomes: '',
      tests: ['nest/health'],
    },
    {
      file: 'js/adapters/nest/health.ts',
      was: '    await lock?.release();\n',
      becomes: '',
      tests: ['nest/health'],
    },
    {
      file: 'js/adapters/nest/health.ts',
      was: 'timeout = 1_000,',
      becomes: 'timeout = 10_000,',
      tests: ['nest/health'],
    },
    {
      file: 'js/adapters/nest/module.ts',
      was: '          return locks.close();\n',
      becomes: '          return undefined;\n',
      tests: ['nest/module'],
    },
    {
      file: 'js/adapters/nest/module.ts',
      was: 'return connect(target, rest);',
      becomes: 'return connect(target);',
      tests: ['nest/module'],
    },
    { file: 'js/adapters/nest/module.ts', was: '          shutDown.add(locks);\n', becomes: '' },
    { file: 'js/adapters/nest/once.ts', was: ' && shutDown.has(locks)', becomes: '' },
    { file: 'js/adapters/nest/once.ts', was: '...rest, slot: slotted', becomes: 'slot: slotted' },
    {
      file: 'js/adapters/nest/lock.ts',
      was: 'args), request, (lock)',
      becomes: 'args), {}, (lock)',
    },
    {
      file: 'js/adapters/nest/wrap.ts',
      was: 'lockManagerToken(manager)',
      becomes: 'lockManagerToken(undefined)',
      tests: ['nest/managers'],
    },
  ],
};
