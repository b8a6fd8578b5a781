/** Mistakes in `js/operators/cli`. */

const RUN = 'js/operators/cli/run.ts';

export default {
  tests: ['cli/run'],
  mistakes: [
    {
      file: RUN,
      was: 'ran && left > 0 && lock.held',
      becomes: 'left > 0 && lock.held',
    },
    {
      file: RUN,
      was: 'for instance in a mail of cron.\n    if (options.conflictExitCode !== 0) report(error, json);',
      becomes: 'for instance in a mail of cron.\n    report(error, json);',
    },
    {
      file: RUN,
      was: '    if (signal.aborted) return codeOf(signal.reason);\n',
      becomes: '',
    },
    {
      file: RUN,
      was: 'const WAIT_MS = 10_000;',
      becomes: 'const WAIT_MS = 60_000;',
    },
    {
      file: RUN,
      was: 'const wanted = { ttl, mode, label, limit, permits };',
      becomes: 'const wanted = { ttl, mode, label, permits };',
    },
    {
      file: 'js/operators/cli/exit.ts',
      was: '  Conflict: 75,',
      becomes: '  Conflict: 1,',
    },
    {
      file: 'js/operators/cli/exit.ts',
      was: 'const unavailable = [LockConnectionError, ',
      becomes: 'const unavailable = [',
    },
    {
      file: 'js/operators/cli/guarded-command.ts',
      was: '    await stopping;\n',
      becomes: '',
      tests: ['cli/loss'],
    },
    {
      file: 'js/operators/cli/guarded-command.ts',
      was: 'return stopping === undefined ? exit : Exit.Lost;',
      becomes: 'return exit;',
      tests: ['cli/loss'],
    },
    {
      file: RUN,
      was: 'return lost ? Exit.Lost : exit;',
      becomes: 'return exit;',
      tests: ['cli/loss'],
    },
  ],
};
