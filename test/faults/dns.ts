/**
 * Run by dns.test.ts: a primary and its replica, each behind a proxy at an address of its own, and one name that leads to
 * one of the addresses, as the primary endpoint of a managed service.
 */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import type { ConnectOptions } from 'holdfast';
import { Authority } from '../support/certificates.js';
import { connect, holdfast, type LockManager, openOperations } from '../support/holdfast.js';
import { setAddress } from '../support/names.js';
import { FaultProxy } from '../support/proxy.js';
import { isInSync } from '../support/replication.js';
import { RedisServer, type ServerOptions } from '../support/server.js';
import { sleep, until } from '../support/wait.js';

const NAME = 'primary.holdfast.test';
/** How long nobody answers in a failover, in ms. */
const OUTAGE_MS = 100;
const PATIENCE = { connectTimeout: 1_500, commandTimeout: 1_500 };
const LONG = { ttl: 60_000, wait: 60_000 };

const ended: (() => Promise<unknown> | unknown)[] = [];

afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
  assert.equal(openOperations(), 0);
});

/** A server, and the proxy by which clients reach it. */
interface Member {
  readonly server: RedisServer;
  readonly proxy: FaultProxy;
  readonly address: string;
}

class Service {
  private constructor(
    private primary: Member,
    private replica: Member,
    private readonly tls: boolean,
  ) {}

  static async start(options: ServerOptions = {}): Promise<Service> {
    // By default a primary waits five seconds for further replicas before it sends its data to one.
    const args = ['--repl-diskless-sync-delay', '0', ...(options.args ?? [])];
    const servers = await RedisServer.startSeveral(2, { ...options, args });
    ended.push(...servers.map((server) => () => server.stop()));
    const members: Member[] = [];
    for (const server of servers) {
      const address = `127.0.0.${members.length + 2}`;
      const port = members[0]?.proxy.port ?? 0;
      const proxy = await FaultProxy.start(server.port, { host: address, port });
      ended.push(() => proxy.stop());
      members.push({ server, proxy, address });
    }
    const [primary, replica] = members as [Member, Member];
    setAddress(NAME, primary.address);
    const service = new Service(primary, replica, options.tls !== undefined);
    await service.#follow();
    return service;
  }

  get url(): string {
    return `${this.tls ? 'rediss' : 'redis'}://${NAME}:${this.primary.proxy.port}`;
  }

  get old(): Member {
    return this.replica;
  }

  get now(): Member {
    return this.primary;
  }

  async connect(options: ConnectOptions = {}): Promise<LockManager> {
    const locks = await connect(this.url, { ...PATIENCE, ...options });
    ended.push(() => locks.close());
    return locks;
  }

  /** Waits until the replica has everything. */
  async inSync(): Promise<void> {
    await until(() => isInSync(this.primary.server, [this.replica.server]), 'the replica');
  }

  /** The replica becomes the primary, and the old one follows it. The name still leads to the old one. */
  async swap(): Promise<void> {
    await this.replica.server.admin.replicaof('NO', 'ONE');
    [this.primary, this.replica] = [this.replica, this.primary];
    await this.#follow();
  }

  rename(): void {
    setAddress(NAME, this.primary.address);
  }

  /** A failover in which nobody answers for a moment. */
  async failOver(): Promise<void> {
    const gone = this.primary.proxy;
    gone.refuse = true;
    gone.cut();
    await sleep(OUTAGE_MS);
    await this.swap();
    this.rename();
    gone.refuse = false;
  }

  async #follow(): Promise<void> {
    const { port } = this.primary.server;
    await this.replica.server.admin.replicaof('127.0.0.1', port);
    await this.inSync();
  }
}

/** Counts the events of a manager. */
function counted(locks: LockManager, event: 'disconnect' | 'lost'): () => number {
  let count = 0;
  locks.on(event, () => {
    count += 1;
  });
  return () => count;
}

function isUnanswered(error: unknown): boolean {
  if (error instanceof holdfast.LockConnectionError) return false;
  throw error;
}

/** Holds a lock, and has somebody wait for it, while `failOver` runs. */
async function survives(
  service: Service,
  failOver: () => Promise<void>,
  options: ConnectOptions = {},
): Promise<void> {
  const [holder, waiter] = [await service.connect(options), await service.connect(options)];
  const lost = [counted(holder, 'lost'), counted(waiter, 'lost')];
  const held = await holder.acquire('kept', LONG);
  const waiting = waiter.acquire('kept', LONG);
  await until(async () => {
    return (await service.now.server.admin.exists('{lock:kept}:queue')) === 1;
  }, 'the waiter');
  await service.inSync();
  await failOver();
  // A command that gets no answer fails; the next one goes to the new primary.
  await until(() => held.extend().then(() => true, isUnanswered), 'the lease at the new primary');
  assert.equal(held.held, true);
  const { admin } = service.now.server;
  assert.match(`${await admin.get('lock:kept')}`, /^hf1\./);
  assert.equal(await held.release(), true);
  const next = await waiting;
  assert.ok(next.fence > held.fence, `${next.fence} after ${held.fence}`);
  assert.equal(await next.release(), true);
  assert.deepEqual(
    lost.map((count) => count()),
    [0, 0],
  );
  assert.equal(await admin.exists('lock:kept'), 0, 'it was released where the name leads');
}

test('the primary goes, and the name leads to another: the lock stays held, its waiter gets it', async () => {
  const service = await Service.start();
  await survives(service, () => service.failOver());
});

test('the old primary lives on as a replica: a manager leaves it when it refuses to write', async () => {
  const service = await Service.start();
  await survives(service, async () => {
    await service.swap();
    service.rename();
  });
  await until(() => service.old.proxy.open === 0, 'the connections to the old primary to be left');
});

test('the name changes late: a manager asks for its address each time it connects', async () => {
  const service = await Service.start();
  const locks = await service.connect();
  const left = counted(locks, 'disconnect');
  await service.swap();
  const pending = locks.acquire('late', LONG);
  await until(() => left() >= 3, 'some connections to the old primary');
  service.rename();
  const lock = await pending;
  assert.equal(await service.now.server.admin.exists('lock:late'), 1);
  assert.equal(await lock.release(), true);
});

test('the host of the old primary is gone without a word: the manager gives it up', async () => {
  const service = await Service.start();
  await survives(service, async () => {
    service.now.proxy.blackhole = true;
    await service.swap();
    service.rename();
  });
});

test('one failover after the other: nothing is lost, and every fence is higher', async () => {
  const service = await Service.start();
  const locks = await service.connect();
  const lost = counted(locks, 'lost');
  const kept = await locks.acquire('kept', LONG);
  let fence = kept.fence;
  for (let round = 0; round < 6; round++) {
    await service.inSync();
    const failed = service.failOver();
    const lock = await locks.acquire('next', LONG);
    await failed;
    assert.ok(lock.fence > fence, `${lock.fence} after ${fence}`);
    fence = lock.fence;
    await lock.release();
  }
  assert.equal(await kept.release(), true);
  assert.equal(lost(), 0);
});

test('over TLS: the certificate is that of the name, whatever its address', async () => {
  const authority = new Authority();
  ended.push(() => authority.remove());
  const { ca } = authority;
  const tls = { server: authority.issue(`DNS:${NAME},IP:127.0.0.1`), ca };
  const service = await Service.start({ tls });
  await survives(service, () => service.failOver(), { tls: { ca: ca.cert } });
});

test('over RESP2: both connections lead to the new primary', async () => {
  const service = await Service.start({ args: ['--rename-command', 'HELLO', ''] });
  await survives(service, () => service.failOver());
  const locks = await service.connect();
  assert.deepEqual(
    locks.stats().servers.map(({ protocol, pubsub }) => ({ protocol, pubsub })),
    [{ protocol: 2, pubsub: true }],
  );
});
