/** A MariaDB that tests start themselves. */

import { join } from 'node:path';
import { DatabaseServer } from './database.js';
import { needs } from './tools.js';

const program = needs('mariadb');

/** For the user that has the rights to everything. */
const ROOT = ['--no-defaults', '--auth-root-authentication-method=normal', '--skip-test-db'];

export class MariaDb extends DatabaseServer {
  /** Starts a server with an empty database, and waits until it answers. */
  static start(): Promise<MariaDb> {
    const make = program('mariadb-install-db');
    const run = program('mariadbd');
    const maria = new MariaDb({
      stopSignal: 'SIGKILL',
      ready: 'ready for connections',
      make: (home) => [make, ...ROOT, `--datadir=${join(home, 'data')}`],
      run: (home, port) => [
        run,
        '--no-defaults',
        `--datadir=${join(home, 'data')}`,
        `--socket=${join(home, 'socket')}`,
        `--port=${port}`,
        '--bind-address=127.0.0.1',
        '--innodb-flush-log-at-trx-commit=0',
        '--skip-name-resolve',
      ],
    });
    return maria.start();
  }

  get url(): string {
    return `mysql://root@127.0.0.1:${this.port}/mysql`;
  }
}
