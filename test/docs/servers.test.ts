/** What docs/servers.md shows. */

import { runPage } from './run-page.js';

const remote = { because: 'the service is not at hand; the types are checked' };

runPage('docs/servers.md', {
  otherwise: {
    'process.env.REDIS_URL': remote,
    UPSTASH_PASSWORD: remote,
    clustercfg: remote,
    'master.shop': remote,
    'server-ca.pem': remote,
    REDIS_KEY: remote,
    'redis-12345': remote,
  },
});
