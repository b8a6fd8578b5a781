/** The module in a real application of Nest: who gets which manager, and when it is closed. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import {
  Controller,
  Get,
  type INestApplicationContext,
  Injectable,
  Module,
  type OnModuleDestroy,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { Test } from '@nestjs/testing';
import { LockManager } from 'holdfast';
import {
  currentLock,
  HoldfastModule,
  InjectLocks,
  Lock,
  lockHealth,
  lockManagerToken,
} from 'holdfast/nest';
import { connect, holdfast } from '../../support/holdfast.js';
import { FaultProxy } from '../../support/proxy.js';
import { serverOfFile } from '../../support/server-of-file.js';

const server = serverOfFile();
const opened: { close(): Promise<unknown> }[] = [];

afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
});

async function start(module: unknown): Promise<INestApplicationContext> {
  const app = await NestFactory.createApplicationContext(module as never, {
    logger: false,
    abortOnError: false,
  });
  opened.push(app);
  return app;
}

@Injectable()
class Stock implements OnModuleDestroy {
  heldAtDestroy: boolean | undefined;
  constructor(readonly locks: LockManager) {}

  @Lock('item:${0}')
  async sell(item: string): Promise<string> {
    return `${item} under ${currentLock().name}`;
  }

  async onModuleDestroy(): Promise<void> {
    this.heldAtDestroy ??= await this.locks.request('last', ({ held }) => held);
  }
}

@Injectable()
class Reports {
  constructor(
    @InjectLocks('reports') readonly locks: LockManager,
    readonly all: LockManager,
  ) {}

  @Lock('report', { manager: 'reports' })
  async build(): Promise<number> {
    return (await this.locks.query({ startsWith: 'report' })).held.length;
  }

  @Lock('report')
  async elsewhere(): Promise<number> {
    return (await this.locks.query({ startsWith: 'report' })).held.length;
  }
}

test('a feature module gets the manager, which is closed with the application', async () => {
  @Module({ providers: [Stock], exports: [Stock] })
  class Feature {}
  @Module({ imports: [HoldfastModule.forRoot({ target: server.url, label: 'nest' }), Feature] })
  class App {}
  const app = await start(App);
  const stock = app.get(Stock, { strict: false });
  assert.ok(stock.locks instanceof LockManager);
  assert.equal(await stock.sell('tea'), 'tea under item:tea');
  const lock = await stock.locks.acquire('kept');
  assert.equal((await stock.locks.query()).held[0]?.label, 'nest');
  await app.close();
  assert.ok(stock.heldAtDestroy, 'the manager was closed too early');
  assert.ok(!lock.held);
  await assert.rejects(stock.sell('tea'), { code: 'ERR_LOCK_CLOSED' });
  assert.equal(await server.admin.exists('kept'), 0);
});

test('several managers by name, each for its own', async () => {
  @Module({
    imports: [
      HoldfastModule.forRoot({ target: server.url, prefix: 'stock:' }),
      HoldfastModule.forRoot({ name: 'reports', target: server.url, prefix: 'reports:' }),
    ],
    providers: [Reports],
  })
  class App {}
  const app = await start(App);
  const reports = app.get(Reports);
  assert.notEqual(reports.locks, reports.all);
  assert.equal(app.get(lockManagerToken('reports')), reports.locks);
  assert.equal(app.get(lockManagerToken()), reports.all);
  assert.deepEqual([await reports.build(), await reports.elsewhere()], [1, 0]);
  await app.close();
  for (const locks of [reports.locks, reports.all]) {
    await assert.rejects(locks.acquire('a'), { code: 'ERR_LOCK_CLOSED' });
  }
});

test('forRootAsync waits for what its factory needs', async () => {
  @Injectable()
  class Config {
    readonly target = server.url;
  }
  @Module({ providers: [Config], exports: [Config] })
  class ConfigModule {}
  const locking = HoldfastModule.forRootAsync({
    imports: [ConfigModule],
    inject: [Config],
    useFactory: async ({ target }: Config) => ({ target, prefix: 'async:' }),
  });
  const app = await start({ module: class App {}, imports: [locking], providers: [Stock] });
  await app.get(Stock).sell('tea');
  await app.get(Stock).locks.acquire('seen');
  assert.equal(await server.admin.exists('async:seen'), 1);
});

test('an application whose server is away does not start, and says which one', async () => {
  const away = HoldfastModule.forRoot({ target: 'redis://:secret@127.0.0.1:1' });
  await assert.rejects(start({ module: class App {}, imports: [away] }), (error: Error) => {
    assert.ok(error instanceof holdfast.LockConnectionError);
    assert.match(error.message, /redis:\/\/127\.0\.0\.1:1/);
    return !error.message.includes('secret');
  });
  const wrong = HoldfastModule.forRoot({ target: 'memory:', tttl: 5 } as never);
  await assert.rejects(start({ module: class App {}, imports: [wrong] }), /did you mean "ttl"/);
});

test('in tests: forTest, or another manager in place of that of the application', async () => {
  const alone = await Test.createTestingModule({
    imports: [HoldfastModule.forTest(), HoldfastModule.forTest('reports')],
    providers: [Stock, Reports],
  }).compile();
  assert.deepEqual(
    [await alone.get(Stock).sell('tea'), await alone.get(Reports).build()],
    ['tea under item:tea', 1],
  );
  await alone.close();
  await assert.rejects(alone.get(Stock).sell('tea'), { code: 'ERR_LOCK_CLOSED' });

  const replaced = await Test.createTestingModule({
    // Nothing connects to it.
    imports: [HoldfastModule.forRoot({ target: 'redis://127.0.0.1:1' })],
    providers: [Stock],
  })
    .overrideProvider(lockManagerToken())
    .useFactory({ factory: () => connect('memory:') })
    .compile();
  const { locks } = replaced.get(Stock);
  assert.equal(await replaced.get(Stock).sell('tea'), 'tea under item:tea');
  await replaced.close();
  await assert.rejects(locks.acquire('a'), { code: 'ERR_LOCK_CLOSED' });
});

test('the name of a manager must be a text', () => {
  assert.throws(() => lockManagerToken(''), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => HoldfastModule.forRoot({ name: 5 as never }), /must be a text/);
});

describe('the health of a manager', () => {
  @Controller('health')
  class Health {
    constructor(
      readonly health: HealthCheckService,
      readonly locks: LockManager,
    ) {}

    @Get()
    @HealthCheck()
    check() {
      return this.health.check([() => lockHealth('locks', this.locks, { timeout: 300 })]);
    }
  }

  test('as Terminus tells it, while the server is there and while it is not', async () => {
    const proxy = await FaultProxy.start(server.port);
    try {
      const locking = HoldfastModule.forRoot({ target: proxy.url });
      const imports = [locking, TerminusModule.forRoot({ logger: false })];
      const root = { module: class App {}, imports, controllers: [Health] };
      const app = await NestFactory.create(root, { logger: false });
      opened.push(app);
      await app.listen(0, '127.0.0.1');
      const ask = async () => {
        const answer = await fetch(`${await app.getUrl()}/health`);
        return { code: answer.status, ...((await answer.json()) as { details: object }) };
      };
      const up = { status: 'up', held: 0, waiting: 0 };
      assert.deepEqual([(await ask()).code, (await ask()).details], [200, { locks: up }]);
      assert.deepEqual(await server.admin.keys('health:*'), []);
      proxy.blackhole = true;
      const { code, details } = await ask();
      assert.equal(code, 503);
      const { status, message } = (details as { locks: typeof up & { message: string } }).locks;
      assert.deepEqual([status, message], ['down', 'no answer within 300 ms']);
    } finally {
      await proxy.stop();
    }
  });

  test('of a server that refuses, and of one that is not there any more', async () => {
    const locks = await connect('memory:');
    assert.deepEqual(await lockHealth('x', locks), { x: { status: 'up', held: 0, waiting: 0 } });
    // Another check has the lock.
    await locks.acquire('probe');
    const { x } = await lockHealth('x', locks, { lock: 'probe' });
    assert.deepEqual(x, { status: 'up', held: 1, waiting: 0 });
    await assert.rejects(lockHealth('x', locks, { timeout: 0 }), { code: 'ERR_OUT_OF_RANGE' });
    await locks.close();
    const closed = (await lockHealth('x', locks)).x;
    assert.equal(closed.status, 'down');
    assert.match(closed.message ?? '', /was closed/);
  });
});

test('a server that is not in the option target is told to be', async () => {
  const bare = HoldfastModule.forRoot('redis://:s3cret@a' as never);
  const message = "HoldfastModule takes an object, as in { target: 'redis://host:6379' }";
  await assert.rejects(start(bare), { code: 'ERR_INVALID_ARG_TYPE', message });
  for (const options of [{ url: 'redis://a' }, { host: 'a', port: 6_379 }, { cluster: [] }]) {
    const module = HoldfastModule.forRoot(options as never);
    await assert.rejects(start(module), /the servers are its option target, as in \{ target:/);
  }
});
