/** Mistakes in `js/connect`. */

const CHANNEL = 'js/connect/channel-options.ts';
const OPTIONS = 'js/connect/options.ts';

export default {
  tests: ['connect/prepared'],
  mistakes: [
    { file: OPTIONS, was: '  ttl: 10_000,\n', becomes: '  ttl: 30_000,\n' },
    { file: OPTIONS, was: '  stallTimeout: 30_000,\n', becomes: '  stallTimeout: 60_000,\n' },
    { file: OPTIONS, was: '  commandTimeout: 2_000,\n', becomes: '  commandTimeout: 5_000,\n' },
    { file: CHANNEL, was: 'SERVER_TIMEOUT_MS = 100;', becomes: 'SERVER_TIMEOUT_MS = 1_000;' },
    {
      file: 'js/connect/tls.ts',
      was: 'rejectUnauthorized = true }',
      becomes: 'rejectUnauthorized = false }',
    },
    { file: CHANNEL, was: 'longestLease = ttl }', becomes: 'longestLease = 0 }' },
    { file: CHANNEL, was: 'retryJitter = retryDelay / 2 }', becomes: 'retryJitter = 0 }' },
    { file: CHANNEL, was: '? limits.lingerMax : 0,', becomes: '? 10_000 : 0,' },
    {
      file: 'js/connect/endpoints.ts',
      was: 'password: password ?? server.password',
      becomes: 'password: server.password ?? password',
    },
    {
      file: CHANNEL,
      was: "limits.replicas === 'majority' ? REPLICAS_MAJORITY : limits.replicas",
      becomes: 'REPLICAS_MAJORITY',
    },
  ],
};
