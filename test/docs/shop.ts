/** What the pages take for granted beside a Redis: a database with five pieces of item 42, and a shop. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'pg';
import { Postgres } from '../support/postgres.js';
import { RedisServer } from '../support/server.js';
import type { Surroundings } from './programs.js';

const SCHEMA =
  'CREATE TABLE stock (id integer PRIMARY KEY, n integer NOT NULL, fence bigint NOT NULL)';
const FULL = 'TRUNCATE stock; INSERT INTO stock VALUES (42, 5, 0)';

/** Whatever it is asked, the answer is 200. */
const shop: Server = createServer((_request, response) => response.end());

/** A Redis, a PostgreSQL and the shop, and what a program needs to know of them. */
export class Shop {
  private constructor(
    readonly redis: RedisServer,
    readonly postgres: Postgres,
    readonly db: Pool,
  ) {}

  static async open(): Promise<Shop> {
    const postgres = await Postgres.start();
    const db = new Pool({ connectionString: postgres.url });
    await db.query(SCHEMA);
    await new Promise<void>((resolve) => shop.listen(0, '127.0.0.1', resolve));
    return new Shop(await RedisServer.start(), postgres, db);
  }

  /** Everything as it was: a block has nothing to do with those before it. */
  async reset(): Promise<void> {
    await this.redis.admin.flushall();
    await this.db.query(FULL);
  }

  get surroundings(): Surroundings {
    return {
      env: {
        REDIS_URL: this.redis.url,
        DATABASE_URL: this.postgres.url,
        SHOP_URL: `http://127.0.0.1:${(shop.address() as AddressInfo).port}`,
      },
      instead: {
        'redis://127.0.0.1:6379': this.redis.url,
        'port: 6379': `port: ${this.redis.port}`,
      },
      stage: 'test/docs/stage.mjs',
    };
  }

  async close(): Promise<void> {
    shop.close();
    shop.closeAllConnections();
    await this.db.end();
    await Promise.all([this.redis.stop(), this.postgres.stop()]);
  }
}
