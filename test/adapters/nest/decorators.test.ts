/** `@Lock` and `@Once` on methods of a real application, with each store. */

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  Inject,
  Injectable,
  Param,
  Scope,
  SetMetadata,
  UseGuards,
} from '@nestjs/common';
import { ContextIdFactory, NestFactory, Reflector } from '@nestjs/core';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockManager } from 'holdfast';
import { currentLock, currentSlot, HoldfastModule, Lock, Once } from 'holdfast/nest';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();

/** A decorator as others write them: it puts a function in place of the method. */
const Doubling: MethodDecorator = (_target, _key, descriptor) => {
  const method = descriptor.value as (...args: unknown[]) => Promise<number>;
  descriptor.value = async function (this: unknown, ...args: unknown[]) {
    return 2 * (await method.apply(this, args));
  } as never;
};

interface Order {
  readonly id: number | string;
  readonly item: { readonly sku: string };
}

@Injectable()
class Shop {
  inside = 0;
  most = 0;
  /** For how long a sale lasts, in ms. */
  pause = 2;
  readonly prefix = 'own';

  @Lock('order:${0.id}:${0.item.sku}:{${1}}')
  async sell(_order: Order, n: bigint | number | string): Promise<string> {
    this.inside += 1;
    this.most = Math.max(this.most, this.inside);
    await new Promise((resolve) => setTimeout(resolve, this.pause));
    this.inside -= 1;
    return `${currentLock().name} ${n}`;
  }

  @Lock(function (this: Shop, a: string, b: string) {
    return `${this.prefix}:${[a, b].sort()}`;
  })
  async route(_a: string, _b: string): Promise<string> {
    return currentLock().name;
  }

  @Lock('outer')
  async outer(): Promise<string[]> {
    const inner = await this.inner();
    return [currentLock().name, inner];
  }

  @Lock('inner', { mode: 'shared', limit: 3 })
  async inner(): Promise<string> {
    return `${currentLock().name} ${currentLock().mode}`;
  }

  @Lock('reentrant', { reentrant: true })
  async countdown(n: number): Promise<number> {
    return n === 0 ? currentLock().fence : this.countdown(n - 1);
  }

  @Lock('busy', { wait: 0 })
  async busy(): Promise<void> {}

  @Lock('lost')
  async lost(): Promise<boolean> {
    const { signal } = currentLock();
    await until(() => signal.aborted, 'the loss');
    return true;
  }

  @Doubling
  @Lock('doubled')
  async above(n: number): Promise<number> {
    return n;
  }

  @Lock('doubled')
  @Doubling
  async below(n: number): Promise<number> {
    return n;
  }
}

class BigShop extends Shop {
  override async route(a: string, b: string): Promise<string> {
    return `big ${await super.route(a, b)}`;
  }
}

for (const kind of ['redis', 'memory'] as const) {
  describe(`on ${kind}:`, () => {
    let app: TestingModule;
    let shop: Shop;

    before(async () => {
      const locking =
        kind === 'redis'
          ? HoldfastModule.forRoot({ target: server.url })
          : HoldfastModule.forTest();
      app = await Test.createTestingModule({
        imports: [locking],
        providers: [Shop, BigShop],
      }).compile();
      shop = app.get(Shop);
    });

    after(() => app?.close());

    test('calls with one name exclude each other, others do not', async () => {
      const order = { id: 7, item: { sku: 'tea' } };
      const names = await Promise.all(Array.from({ length: 5 }, () => shop.sell(order, 3n)));
      assert.deepEqual(new Set(names), new Set(['order:7:tea:{3} 3']));
      assert.equal(shop.most, 1);
      // Long enough for a busy machine to let all three in.
      shop.pause = 500;
      await Promise.all([1, 2, 3].map((id) => shop.sell({ ...order, id }, id)));
      assert.equal(shop.most, 3);
    });

    test('a function names a lock by the arguments, and by the object', async () => {
      assert.equal(await shop.route('b', 'a'), 'own:a,b');
      assert.equal(await app.get(BigShop).route('b', 'a'), 'big own:a,b');
    });

    test('an argument that is missing, or no text or number, is an error ahead of the lock', async () => {
      const { requests } = app.get(LockManager).stats();
      const item = { sku: 'tea' };
      for (const wrong of [
        [{ item }, 1],
        [{ id: '', item }, 1],
        [{ id: {}, item }, 1],
        [{ id: Number.NaN, item }, 1],
        [{ id: '\ud800', item }, 1],
        [undefined, 1],
        [{ id: 1, item }],
      ]) {
        await assert.rejects(shop.sell(...(wrong as [Order, number])), {
          code: 'ERR_INVALID_ARG_TYPE',
          message: /^the lock "order:.*" of @Lock on Shop\.sell needs a text or a number for \$\{/,
        });
      }
      assert.equal(app.get(LockManager).stats().requests, requests);
    });

    test('locks nest, and currentLock is the innermost', async () => {
      assert.deepEqual(await shop.outer(), ['outer', 'inner shared']);
      assert.ok((await shop.countdown(3)) > 0);
      assert.throws(currentLock, { code: 'ERR_LOCK_NOT_DECORATED' });
      assert.throws(currentSlot, /no method with @Lock, @Once or @Leader runs here/);
    });

    test('options are those of request, and a loss is one', async () => {
      const locks = app.get(LockManager);
      await locks.request('busy', () =>
        assert.rejects(shop.busy(), { code: 'ERR_LOCK_TIMEOUT', lock: 'busy' }),
      );
      await shop.busy();
      const lost = assert.rejects(shop.lost(), { code: 'ERR_LOCK_LOST', result: true });
      await until(() => locks.forceRelease('lost'), 'the lock to be taken away');
      await lost;
    });

    test('beside decorators that replace the method, in either order', async () => {
      assert.deepEqual([await shop.above(3), await shop.below(3)], [6, 6]);
    });

    test('a provider for each request, and its controller', async () => {
      @Injectable({ scope: Scope.REQUEST })
      class Cart {
        @Lock('cart:${0}')
        async add(_id: string): Promise<{ lock: string; cart: Cart }> {
          return { lock: currentLock().name, cart: this };
        }
      }
      @Injectable({ scope: Scope.TRANSIENT })
      class Fleeting {
        @Lock('fleeting')
        async run(): Promise<string> {
          return currentLock().name;
        }
      }
      const locking =
        kind === 'redis'
          ? HoldfastModule.forRoot({ target: server.url })
          : HoldfastModule.forTest();
      const module = await Test.createTestingModule({
        imports: [locking],
        providers: [Cart, Fleeting],
      }).compile();
      const resolve = () => module.resolve(Cart, ContextIdFactory.create());
      const [one, two] = await Promise.all([resolve(), resolve()]);
      const [first, second] = await Promise.all([one.add('1'), two.add('2')]);
      assert.deepEqual([first.lock, second.lock], ['cart:1', 'cart:2']);
      assert.ok(first.cart === one && second.cart === two && one !== two);
      assert.equal(await (await module.resolve(Fleeting)).run(), 'fleeting');
      await module.close();
    });

    test('once per slot, by what the arguments or the clock say', async () => {
      @Injectable()
      class Jobs {
        readonly done: string[] = [];

        @Once('invoice:${0}', { slot: '${1}' })
        async invoice(customer: string, month: string): Promise<string | undefined> {
          this.done.push(`${customer} ${month}`);
          return `${currentLock().name} ${currentSlot()}`;
        }

        @Once('rates', { every: '1h', keepResult: true })
        async rates(): Promise<{ at: string } | undefined> {
          this.done.push('rates');
          return { at: currentSlot() };
        }

        @Once('named', { slot: (first: string) => `${first.length}` })
        async named(_first: string): Promise<void> {
          this.done.push(currentSlot());
        }
      }
      const locking =
        kind === 'redis'
          ? HoldfastModule.forRoot({ target: server.url })
          : HoldfastModule.forTest();
      const module = await Test.createTestingModule({
        imports: [locking],
        providers: [Jobs],
      }).compile();
      const jobs = module.get(Jobs);
      assert.equal(await jobs.invoice('ann', '2026-01'), 'invoice:ann 2026-01');
      assert.equal(await jobs.invoice('ann', '2026-01'), undefined);
      await jobs.invoice('ann', '2026-02');
      await jobs.invoice('bob', '2026-01');
      const first = await jobs.rates();
      assert.match(first?.at ?? '', /T\d\d:00:00\.000Z$/);
      assert.deepEqual(await jobs.rates(), first);
      for (const text of ['one', 'two', 'three']) await jobs.named(text);
      assert.deepEqual(jobs.done, ['ann 2026-01', 'ann 2026-02', 'bob 2026-01', 'rates', '3', '5']);
      await module.close();
    });
  });
}

test('names, parameters and metadata stay, whichever decorator stands first', async () => {
  const Roles = Reflector.createDecorator<string[]>();
  @Injectable()
  class Guard implements CanActivate {
    constructor(readonly reflector: Reflector) {}
    canActivate(context: ExecutionContext): boolean {
      const roles = this.reflector.get(Roles, context.getHandler()) ?? [];
      return roles.includes('seller') && context.getHandler().name.startsWith('sell');
    }
  }
  @Controller()
  @UseGuards(Guard)
  class Sales {
    @Lock('item:${0}')
    @Roles(['seller'])
    @Get('below/:id')
    async sellBelow(@Param('id') id: string): Promise<string> {
      return `${id} ${currentLock().name}`;
    }

    @SetMetadata('other', 1)
    @Roles(['seller'])
    @Get('above/:id')
    @Lock('item:${0}')
    async sellAbove(@Param('id') id: string): Promise<string> {
      return `${id} ${currentLock().name}`;
    }
  }
  const { sellBelow, sellAbove } = Sales.prototype;
  assert.deepEqual([sellBelow.name, sellBelow.length], ['sellBelow', 1]);
  assert.deepEqual([sellAbove.name, sellAbove.length], ['sellAbove', 1]);
  const paramtypes = Reflect.getMetadata('design:paramtypes', Sales.prototype, 'sellBelow');
  assert.deepEqual(paramtypes, [String]);
  const root = { module: class App {}, imports: [HoldfastModule.forTest()], controllers: [Sales] };
  const app = await NestFactory.create(root, { logger: false });
  try {
    await app.listen(0, '127.0.0.1');
    for (const where of ['below', 'above']) {
      const answer = await fetch(`${await app.getUrl()}/${where}/7`);
      assert.equal(await answer.text(), '7 item:7', where);
    }
  } finally {
    await app.close();
  }
});

test('@Once beside @Cron, above and below it', async () => {
  @Injectable()
  class Jobs {
    ticks: string[] = [];

    @Cron('0 0 3 * * *', { name: 'above' })
    @Once('above', { slot: 's' })
    async above(): Promise<void> {
      this.ticks.push(`above ${currentSlot()}`);
    }

    @Once('below', { slot: 's' })
    @Cron('0 0 3 * * *', { name: 'below' })
    async below(): Promise<void> {
      this.ticks.push(`below ${currentSlot()}`);
    }
  }
  const app = await NestFactory.createApplicationContext(
    {
      module: class App {},
      imports: [HoldfastModule.forTest(), ScheduleModule.forRoot()],
      providers: [Jobs],
    },
    { logger: false },
  );
  const registry = app.get(SchedulerRegistry);
  for (const name of ['above', 'below', 'above', 'below']) {
    await registry.getCronJob(name).fireOnTick();
  }
  const jobs = app.get(Jobs);
  await until(() => jobs.ticks.length === 2, 'both to run');
  await app.close();
  assert.deepEqual(jobs.ticks.sort(), ['above s', 'below s']);
});

test('a tick that waits while its application shuts down is no error: another process runs the body', async () => {
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  let bodies = 0;
  @Injectable()
  class Nightly {
    @Once('nightly', { slot: '1', wait: 60_000 })
    async run(): Promise<string | undefined> {
      bodies += 1;
      await gate;
      return currentSlot();
    }
  }
  const target = server.url;
  const open = async () => {
    const imports = [HoldfastModule.forRoot({ target })];
    const module = { module: class App {}, imports, providers: [Nightly] };
    return NestFactory.createApplicationContext(module, { logger: false });
  };
  const [one, other] = [await open(), await open()];
  const [ran, locks] = [one.get(Nightly).run(), one.get(LockManager)];
  await until(() => bodies === 1, 'the body');
  const waits = other.get(Nightly).run();
  await until(async () => (await locks.query()).pending.length === 1, 'the tick that waits');
  await other.close();
  assert.equal(await waits, undefined);
  assert.equal(await other.get(Nightly).run(), undefined, 'nor after the end');
  go();
  assert.equal(await ran, '1');
  // A manager that the application has closed by mistake is no shutdown.
  await locks.close();
  await assert.rejects(one.get(Nightly).run(), { code: 'ERR_LOCK_CLOSED' });
  await one.close();
});

test('what cannot work is refused, with the method that it is about', async () => {
  const decorate = (decorator: MethodDecorator, key = 'run') => {
    class Wrong {
      async run(): Promise<void> {}
    }
    const descriptor = Object.getOwnPropertyDescriptor(Wrong.prototype, key) ?? {};
    decorator(Wrong.prototype, key, descriptor);
  };
  for (const name of ['item:${id}', '${}', '${0.a()}', '${0[1]}', '${-1}', '${0.a.}']) {
    const expected = { code: 'ERR_INVALID_ARG_VALUE', message: /@Lock on Wrong\.run has \$\{/ };
    assert.throws(() => decorate(Lock(name) as MethodDecorator), expected, name);
  }
  assert.throws(
    () => decorate(Lock(5 as never) as MethodDecorator),
    /needs a name, .* got number 5/,
  );
  assert.throws(() => decorate(Lock('a') as MethodDecorator, 'other'), /must be on a method/);
  class Other {
    async run(_id: number): Promise<void> {}
  }
  const { value } = Object.getOwnPropertyDescriptor(Other.prototype, 'run') ?? {};
  const named = (name: string) => () => Lock(name)(Other.prototype, 'run', { value });
  for (const name of [`a:${0}`, `${0}`, `a:${0}:b`, `{${0}}`]) {
    assert.throws(named(name), /write \$\{0\} in quotes, not in backticks/, name);
  }
  for (const name of ['a:1', 'a0', 'v1:${0}', 'a:00', 'a']) named(name)();
  class Static {
    static async run(): Promise<void> {}
    async other(): Promise<void> {}
  }
  const descriptor = Object.getOwnPropertyDescriptor(Static, 'run') ?? {};
  assert.throws(() => Lock('a')(Static, 'run', descriptor), /Static\.run must be on a method/);

  await assert.rejects(new Shop().busy(), /@Lock on Shop\.busy has no lock manager: Nest gives it/);
  const missing = Test.createTestingModule({ providers: [Shop] }).compile();
  await assert.rejects(missing, /LockManager/);

  @Injectable()
  class Later {
    constructor(@Inject(LockManager) readonly locks: LockManager) {}
    @Lock((() => 7) as never)
    async number(): Promise<void> {}
    @Lock('a')
    async slotless(): Promise<void> {
      currentSlot();
    }
    @Once('a', {})
    async lacking(): Promise<void> {}
  }
  const module = await Test.createTestingModule({
    imports: [HoldfastModule.forTest()],
    providers: [Later],
  }).compile();
  const later = module.get(Later);
  await assert.rejects(
    later.number(),
    /names the lock of @Lock on Later\.number must return a text/,
  );
  await assert.rejects(later.slotless(), /only one with @Once has a slot/);
  await assert.rejects(later.lacking(), /runOnce needs one of every/);
  await module.close();
});
