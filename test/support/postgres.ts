/** A PostgreSQL that tests start themselves. */

import { join } from 'node:path';
import { DatabaseServer } from './database.js';
import { needs } from './tools.js';

const program = needs('postgres');

export class Postgres extends DatabaseServer {
  /** Starts a server with an empty database, and waits until it answers. */
  static start(): Promise<Postgres> {
    const make = program('initdb');
    const run = program('postgres');
    const initdb = '-U postgres -A trust -E UTF8 --no-locale --no-sync'.split(' ');
    const postgres = new Postgres({
      stopSignal: 'SIGQUIT',
      ready: 'ready to accept connections',
      make: (home) => [make, '-D', join(home, 'data'), ...initdb],
      run: (home, port) => {
        const settings = {
          fsync: 'off',
          full_page_writes: 'off',
          listen_addresses: '127.0.0.1',
          port,
          unix_socket_directories: '',
        };
        const all = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
        return [run, '-D', join(home, 'data'), ...all];
      },
    });
    return postgres.start();
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`;
  }
}
