/** A shop at work: locks of every kind, with holders and waiters, for the tests that look at the page. */

import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type LockUi, type LockUiOptions, lockUi } from 'holdfast/ui';
import { connect, type LockManager } from '../../support/holdfast.js';
import { until } from '../../support/wait.js';

type Snapshot = Awaited<ReturnType<LockManager['query']>>;

const MINUTE = 60_000;
const LONG = { ttl: 30 * MINUTE, wait: 30 * MINUTE };

/** A store whose holds and waits are older than they are. */
export interface Story {
  /** How much earlier than it did everybody asked for a lock, in ms, by its name. */
  readonly age: Record<string, number>;
  readonly waited: Record<string, number>;
}

const SEMAPHORES: Record<string, number> = {
  'api:payments': 4,
  'api:mail': 4,
  'import:workers': 8,
};

/** What is special about the locks of the scene. */
export const STORY: Story = {
  age: {
    'stock:4711': 4 * MINUTE,
    'invoice:2026-11': 95_000,
    'deploy:shop': 12 * MINUTE,
    'report:monthly': 3 * 60 * MINUTE,
    'leader:scheduler': 26 * 60 * MINUTE,
    'leader:outbox': 5 * 60 * MINUTE,
    'api:payments': 48_000,
    'order:10377': 20_000,
    'order:10414': 75_000,
  },
  waited: { 'stock:4711': 3.5 * MINUTE, 'invoice:2026-11': 42_000, 'api:payments': 9_000 },
};

/** A manager for which time has passed. `asked` is called before each look at its locks, and may throw. */
export function telling(
  locks: LockManager,
  { age, waited }: Story,
  asked: () => void = () => {},
): LockManager {
  const query = async (...given: Parameters<LockManager['query']>): Promise<Snapshot> => {
    asked();
    const { held, pending } = await locks.query(...given);
    return {
      held: held.map((each) => {
        const earlier = age[each.name] ?? 0;
        const asked = each.askedAt === null ? null : new Date(each.askedAt.getTime() - earlier);
        return { ...each, askedAt: asked };
      }),
      pending: pending.map((each) => ({ ...each, waited: each.waited + (waited[each.name] ?? 0) })),
    };
  };
  return new Proxy(locks, {
    get(target, key) {
      if (key === 'query') return query;
      const value = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** A page with its server. */
export interface Served {
  readonly url: string;
  readonly ui: LockUi;
  close(): Promise<void>;
}

export async function serve(options: LockUiOptions): Promise<Served> {
  const ui = lockUi({ interval: 100, ...options });
  const server: Server = createServer((request, response) => ui(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    ui,
    async close() {
      ui.close();
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

/** Processes that hold and wait for forty locks. */
export class Scene {
  readonly #managers: LockManager[] = [];
  readonly #ended = new AbortController();
  readonly #leading: Promise<unknown>[] = [];
  /** Nobody must lose the locks before the scene ends. */
  readonly #held: unknown[] = [];

  /** The managers end with the scene. `looking` is the page's own, which keeps a lock for its next caller. */
  async begin(url: string, looking: LockManager): Promise<void> {
    await looking.request('cache:warm', { ...LONG, linger: LONG.ttl / 3 }, () => {});
    const labels = ['web-1', 'web-2', 'web-3', 'worker-1', 'worker-2', 'worker-3', 'cron-1'];
    for (const label of labels) this.#managers.push(await connect(url, { label }));
    // Without a label people see the end of the client id.
    for (let i = 0; i < 6; i++) this.#managers.push(await connect(url, { label: '' }));
    await this.#hold();
    await this.#share();
    await this.#finish();
    await this.#wait();
  }

  async end(): Promise<void> {
    this.#ended.abort();
    await Promise.allSettled(this.#leading);
    await Promise.all(this.#managers.map((each) => each.close()));
  }

  manager(i: number): LockManager {
    return this.#managers[i % this.#managers.length] as LockManager;
  }

  /** One lock that changes hands again and again, and some that do so once. */
  async move(): Promise<void> {
    for (let i = 0; i < 14; i++) {
      const lock = await this.manager(i % 3).acquire('cart:hot', LONG);
      await new Promise((resolve) => setTimeout(resolve, 130));
      await lock.release();
    }
    await (await this.manager(3).acquire('cart:10229', LONG)).release();
    await this.#keep(4, 'cart:10229', LONG);
    await this.manager(0).forceRelease('order:10007');
    await this.#keep(0, 'order:10007', LONG);
  }

  async #keep(i: number, ...given: Parameters<LockManager['acquire']>): Promise<void> {
    this.#held.push(await this.manager(i).acquire(...given));
  }

  async #hold(): Promise<void> {
    for (let i = 0; i < 16; i++) {
      await this.#keep(i, `order:${10_007 + i * 37}`, { ...LONG, ttl: 8_000 + i * 3_000 });
    }
    await this.#keep(7, 'stock:4711', LONG);
    await this.#keep(3, 'invoice:2026-11', LONG);
    await this.#keep(5, 'report:monthly', LONG);
    const label = 'deploy by anna@example.com (build 4711)';
    await this.#keep(6, 'deploy:shop', { ...LONG, label });
    await this.#keep(
      2,
      'tenant:0f8fad5b-d9cb-469f-a165-70867728950e:customer:7c9e6679-7425-40de-944b-e07fc1f90ae7:checkout',
      LONG,
    );
    await this.#keep(8, 'maintenance', LONG);
    await this.#keep(2, 'search:index', {
      ...LONG,
      label: 'reindex.after-the-move.of-catalogue.started-by-the-nightly-job.on-worker-12.eu-west',
    });
    for (const [i, name] of ['scheduler', 'outbox'].entries()) {
      const leads = this.manager(i + 5).lead(name, { signal: this.#ended.signal }, ({ signal }) => {
        return new Promise<void>((done) => signal.addEventListener('abort', () => done()));
      });
      this.#leading.push(leads);
      await until(async () => (await this.manager(0).leader(name)) !== null, 'a leader');
    }
  }

  async #share(): Promise<void> {
    const takes = (name: string, count: number) =>
      Array.from({ length: count }, (_, i) => i).reduce(async (before, i) => {
        await before;
        const limit = SEMAPHORES[name];
        const share = {
          ...LONG,
          mode: 'shared',
          ...(limit === undefined ? {} : { limit }),
        } as const;
        await this.#keep(i, name, share);
      }, Promise.resolve());
    await takes('api:payments', 4);
    await takes('api:mail', 3);
    await this.#keep(3, 'import:workers', { ...LONG, mode: 'shared', limit: 8, permits: 3 });
    await takes('import:workers', 2);
    await takes('catalogue:read', 6);
  }

  async #finish(): Promise<void> {
    const worker = this.manager(6);
    await worker.runOnce('mail:newsletter', { every: '1h' }, async () => {});
    const kept = { every: '1d', keepResult: true } as const;
    await worker.runOnce('report:daily', kept, async () => ({ rows: 4_711 }));
    await worker.runOnce('billing:close', { slot: '2026-10', keep: '1d' }, async () => {});
  }

  async #wait(): Promise<void> {
    const queues: [string, number, object][] = [
      ['stock:4711', 9, {}],
      ['invoice:2026-11', 3, {}],
      ['api:payments', 4, { mode: 'shared', limit: 4 }],
      ['order:10044', 1, {}],
      ['search:index', 2, {}],
    ];
    for (const [name, count, options] of queues) {
      for (let i = 0; i < count; i++) {
        const signal = this.#ended.signal;
        this.manager(i + 8)
          .acquire(name, { ...LONG, ...options, signal })
          .catch(() => {});
      }
    }
    // The holder of this one waits for another.
    this.manager(7)
      .acquire('invoice:2026-11', { ...LONG, signal: this.#ended.signal })
      .catch(() => {});
    const waiting = async () => (await this.manager(0).query()).pending.length;
    await until(async () => (await waiting()) >= 15, 'the wait queues');
  }
}
