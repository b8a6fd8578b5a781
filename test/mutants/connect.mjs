/** Mistakes in `js/connect`. */

const CONNECT = 'js/connect/connect.ts';
const OPTIONS = 'js/connect/options.ts';

export default {
  tests: ['connect/prepared'],
  mistakes: [
    { file: OPTIONS, was: '  ttl: 10_000,\n', becomes: '  ttl: 30_000,\n' },
    { file: OPTIONS, was: '  stallTimeout: 30_000,\n', becomes: '  stallTimeout: 60_000,\n' },
    { file: OPTIONS, was: '  commandTimeout: 2_000,\n', becomes: '  commandTimeout: 5_000,\n' },
    { file: OPTIONS, was: '  serverTimeout: 100,\n', becomes: '  serverTimeout: 1_000,\n' },
    {
      file: 'js/connect/tls.ts',
      was: 'rejectUnauthorized = true }',
      becomes: 'rejectUnauthorized = false }',
    },
    { file: CONNECT, was: 'longestLease = checked.ttl }', becomes: 'longestLease = 0 }' },
    { file: CONNECT, was: 'retryJitter = retryDelay / 2 }', becomes: 'retryJitter = 0 }' },
    { file: CONNECT, was: 'lingerMax: checked.lingerMax,', becomes: 'lingerMax: 10_000,' },
    {
      file: CONNECT,
      was: 'password: password ?? server.password',
      becomes: 'password: server.password ?? password',
    },
    {
      file: CONNECT,
      was: "checked.replicas === 'majority' ? REPLICAS_MAJORITY : checked.replicas",
      becomes: 'REPLICAS_MAJORITY',
    },
  ],
};
