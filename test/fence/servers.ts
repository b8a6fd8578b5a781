/** One of each server that stores need. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { httpFence, redisFences } from 'holdfast/fence';
import { createConnection } from 'mysql2/promise';
import { Pool } from 'pg';
import { MariaDb } from '../support/mariadb.js';
import { Postgres } from '../support/postgres.js';
import { RedisServer } from '../support/server.js';
import { type Places, TABLES } from './stores.js';

export class Servers {
  private constructor(
    readonly redis: RedisServer,
    readonly postgres: Postgres,
    readonly maria: MariaDb,
    readonly http: Server,
    /** What was put to the HTTP server, by path. */
    readonly put: ReadonlyMap<string, string>,
  ) {}

  static async start(): Promise<Servers> {
    const [redis, postgres, maria] = await Promise.all([
      RedisServer.start(),
      Postgres.start(),
      MariaDb.start(),
    ]);
    const { http, put } = await listen(redis);
    const servers = new Servers(redis, postgres, maria, http, put);
    for (const statement of TABLES('postgres')) await servers.onPostgres(statement);
    for (const statement of TABLES('mysql')) await servers.onMysql(statement);
    return servers;
  }

  get places(): Places {
    return {
      redis: this.redis.url,
      postgres: this.postgres.url,
      mysql: this.maria.url,
      sqlite: join(this.redis.folder, 'sqlite'),
      http: `http://127.0.0.1:${(this.http.address() as AddressInfo).port}`,
    };
  }

  async onPostgres(statement: string): Promise<readonly Record<string, unknown>[]> {
    const pool = new Pool({ connectionString: this.postgres.url });
    try {
      return (await pool.query(statement)).rows;
    } finally {
      await pool.end();
    }
  }

  async onMysql(statement: string): Promise<readonly Record<string, unknown>[]> {
    const connection = await createConnection(this.maria.url);
    try {
      const [rows] = await connection.query(statement);
      return rows as Record<string, unknown>[];
    } finally {
      await connection.end();
    }
  }

  async stop(): Promise<void> {
    this.http.closeAllConnections();
    this.http.close();
    await Promise.all([this.redis.stop(), this.postgres.stop(), this.maria.stop()]);
  }
}

/** A service that keeps what is put, with fences in Redis. */
async function listen(redis: RedisServer): Promise<{ http: Server; put: Map<string, string> }> {
  const put = new Map<string, string>();
  const fence = httpFence({
    name: ({ url = '' }: { headers: NodeJS.Dict<string>; url?: string }) =>
      decodeURIComponent(url.slice('/stock/'.length)),
    store: redisFences(redis.admin),
  });
  const http = createServer((request, response) => {
    fence(request as never, response, (error) => {
      void text(request).then((body) => {
        if (error === undefined) put.set(request.url ?? '', body);
        response.writeHead(error === undefined ? 200 : 500).end();
      });
    });
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  return { http, put };
}
