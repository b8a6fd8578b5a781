/** What docs/servers.md shows. */

import { runPage } from './run-page.js';

const remote = { because: 'the service is not at hand; the types are checked' };

runPage('docs/servers.md', {
  otherwise: {
    'process.env.REDIS_URL': remote,
    'clustercfg.shop.abc123.euw1': remote,
    'master.shop': remote,
    'server-ca.pem': remote,
    '10.0.0.7': remote,
  },
});
