/** Mistakes in `js/nest`. */

export default {
  tests: ['nest/decorators'],
  mistakes: [
    {
      file: 'js/nest/leader.ts',
      was: 'await campaigns.get(self)?.end();',
      becomes: '',
      tests: ['nest/leader'],
    },
    {
      file: 'js/nest/leader.ts',
      was: 'await campaign.begun;',
      becomes: '',
      tests: ['nest/leader'],
    },
    {
      file: 'js/nest/leader.ts',
      was: '{ onError, ...rest, signal }',
      becomes: '{ ...rest, signal }',
      tests: ['nest/leader'],
    },
    {
      file: 'js/nest/health.ts',
      was: '    clearTimeout(timer);\n',
      becomes: '',
      tests: ['nest/health'],
    },
    {
      file: 'js/nest/health.ts',
      was: '    await lock?.release();\n',
      becomes: '',
      tests: ['nest/health'],
    },
    {
      file: 'js/nest/health.ts',
      was: 'timeout = 1_000,',
      becomes: 'timeout = 10_000,',
      tests: ['nest/health'],
    },
    {
      file: 'js/nest/module.ts',
      was: '          return locks.close();\n',
      becomes: '          return undefined;\n',
      tests: ['nest/module'],
    },
    {
      file: 'js/nest/module.ts',
      was: 'return connect(target, rest);',
      becomes: 'return connect(target);',
      tests: ['nest/module'],
    },
    { file: 'js/nest/module.ts', was: '          shutDown.add(locks);\n', becomes: '' },
    { file: 'js/nest/once.ts', was: ' && shutDown.has(locks)', becomes: '' },
    { file: 'js/nest/once.ts', was: '...rest, slot: slotted', becomes: 'slot: slotted' },
    { file: 'js/nest/lock.ts', was: 'args), request, (lock)', becomes: 'args), {}, (lock)' },
    {
      file: 'js/nest/wrap.ts',
      was: 'lockManagerToken(manager)',
      becomes: 'lockManagerToken(undefined)',
      tests: ['nest/managers'],
    },
  ],
};
