/** Guards of data in PostgreSQL, broken off between any two of their steps. */

import { fenceTable } from 'holdfast/fence';
import { Client } from 'pg';
import { Postgres } from '../support/postgres.js';
import { breakEveryStep } from './harness.js';

breakEveryStep('fence-sql', {
  async postgres() {
    const server = await Postgres.start();
    const client = new Client({ connectionString: server.url });
    await client.connect();
    await client.query(fenceTable('postgres'));
    await client.query('CREATE TABLE stock (item text PRIMARY KEY, here int, there int)');
    await client.end();
    return server;
  },
});
