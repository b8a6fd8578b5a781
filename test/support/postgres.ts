/** A PostgreSQL that tests start themselves. */

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseServer, programs } from './database.js';

/** Where Debian keeps its binaries, none of which it puts on PATH. */
const DEBIAN = '/usr/lib/postgresql';

function folder(): string {
  const debian = existsSync(DEBIAN)
    ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a))
    : [];
  return programs({
    names: ['initdb', 'postgres'],
    variable: 'HOLDFAST_POSTGRES',
    folders: debian.map((version) => join(DEBIAN, version, 'bin')),
    advice:
      'this test needs PostgreSQL: install it (Debian: apt-get install postgresql; macOS: brew install postgresql)',
  });
}

export class Postgres extends DatabaseServer {
  /** Starts a server with an empty database, and waits until it answers. */
  static start(): Promise<Postgres> {
    const bin = folder();
    const initdb = '-U postgres -A trust -E UTF8 --no-locale --no-sync'.split(' ');
    const postgres = new Postgres({
      stopSignal: 'SIGQUIT',
      ready: 'ready to accept connections',
      make: (home) => [join(bin, 'initdb'), '-D', join(home, 'data'), ...initdb],
      run: (home, port) => {
        const settings = {
          fsync: 'off',
          full_page_writes: 'off',
          listen_addresses: '127.0.0.1',
          port,
          unix_socket_directories: '',
        };
        const all = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
        return [join(bin, 'postgres'), '-D', join(home, 'data'), ...all];
      },
    });
    return postgres.start();
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`;
  }
}
